#include <salvo/salvo.h>
#include <stdio.h>
int main(void)
{
    puts(salvo_version());
    return 0;
}
