"""What can be asked of overflow.

`spilling` decides to rent; `instances` takes what was decided from launch to end, through
`renting` and `returning`; `records` takes down what became of it.
"""
