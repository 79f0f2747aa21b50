#include "reel.h"

#define TEXT(x)  #x
#define VALUE(x) TEXT(x)

const char *reel_version(void) {
    return VALUE(REEL_VERSION_MAJOR) "." VALUE(REEL_VERSION_MINOR) "." VALUE(REEL_VERSION_PATCH);
}
