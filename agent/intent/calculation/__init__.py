"""Calculations on the metadata: counts, groups, extremes, sums, shares, values of single records, lists."""

from agent.intent.calculation.compose import find_calculation as find_calculation
from agent.intent.calculation.compose import read_calculation as read_calculation
from agent.intent.calculation.lists import MOST_LISTED as MOST_LISTED
from agent.intent.calculation.lists import asks_who_has_not as asks_who_has_not
from agent.intent.calculation.lists import fields_shown as fields_shown
from agent.intent.calculation.lists import find_listing as find_listing
from agent.intent.calculation.lists import find_lookup as find_lookup
from agent.intent.calculation.lists import listing as listing
from agent.intent.calculation.lists import merged as merged
from agent.intent.calculation.lists import values_of as values_of
from agent.intent.calculation.question import Calculation as Calculation
