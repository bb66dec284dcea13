salvo_test(test_team SOURCES test_team.c LABELS quick)
