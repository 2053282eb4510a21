"""The pure part: no clock, file, process or network. Text and facts in, facts and decisions out."""
