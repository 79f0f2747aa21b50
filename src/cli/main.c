/* The command line tool: which command, then its options. */
#include "reel.h"

#include <stdio.h>

int main(void) {
    printf("reel %s\n", reel_version());
    return 0;
}
