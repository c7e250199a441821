"""`signalbox explain` and `replay`: a decision record goes in; readable sections come out."""
