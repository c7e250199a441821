"""`signalbox doctor`: the settings go in; one check per part of the installation comes out, with a remedy."""
