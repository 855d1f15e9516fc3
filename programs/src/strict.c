/* Goes into seccomp's strict mode, where only read, write, exit and sigreturn are allowed, and uses memory there. */
#define _GNU_SOURCE
#include <linux/seccomp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    size_t size = (size_t)64 << 20;
    char *block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(block, 1, size / 2);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) return 2;
    memset(block + size / 2, 2, size / 2);
    const char *text = block[0] == 1 && block[size - 1] == 2 ? "right\n" : "wrong\n";
    if (write(1, text, 6) != 6) return 3;
    syscall(SYS_exit, 0);
    return 1;
}
