salvo_test(test_team SOURCES test_team.c LABELS quick)
salvo_test(test_pace SOURCES test_pace.c LABELS quick)
