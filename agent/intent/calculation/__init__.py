"""Calculations on the metadata: counts, groups, extremes, sums, shares, values of single records, lists."""

from agent.intent.calculation.builder import find_calculation as find_calculation
from agent.intent.calculation.builder import read_calculation as read_calculation
from agent.intent.calculation.lists import asks_for_unmatched_values as asks_for_unmatched_values
from agent.intent.calculation.lists import find_list as find_list
from agent.intent.calculation.lists import find_lookup as find_lookup
from agent.intent.calculation.lists import list_calculation as list_calculation
from agent.intent.calculation.lists import merge_counts as merge_counts
from agent.intent.calculation.lists import requested_fields as requested_fields
from agent.intent.calculation.lists import values_calculation as values_calculation
from agent.intent.calculation.segmented_question import MAX_LIST_ROWS as MAX_LIST_ROWS
from agent.intent.calculation.segmented_question import Calculation as Calculation
