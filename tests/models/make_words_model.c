/* make-words-model SHAPE OUT: a model with random weights and a vocabulary of bytes and a few words, for the
 * tests of the command line. */
#include "cmocka_test.h"
#include "engine_fixture.h"

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    write_model_with_vocabulary(argv[1], "Q8_0", argv[2]);
    return 0;
}
