// Uses only functions that the oldest driver of the tests has.
#include "../check.h"

int main(void) {
    start_cuda();
    loop(50);
    puts("ok");
    return 0;
}
