/* make-words-model OUT: a tiny model with random weights and a vocabulary of bytes and a few words, for the
 * tests of the command line. */
#include "cmocka_test.h"
#include "engine_fixture.h"

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    write_model_with_vocabulary("llama-tiny", "Q8_0", argv[1]);
    return 0;
}
