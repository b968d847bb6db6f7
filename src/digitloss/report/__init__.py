"""Result files in, tables (`tables`) and pictures (`pictures`) out. Nothing here trains or measures."""
