/* Installs a seccomp filter for all threads that refuses one system call as its arguments say, before its first mapping or after that,
   uses memory and ends. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count < 3) return 2;
    unsigned action = !strcmp(words[1], "kill") ? SECCOMP_RET_KILL_PROCESS : !strcmp(words[1], "kill-thread") ? SECCOMP_RET_KILL_THREAD
                      : !strcmp(words[1], "trap") ? SECCOMP_RET_TRAP : SECCOMP_RET_ERRNO | EPERM;
    int call = !strcmp(words[2], "openat") ? SYS_openat : !strcmp(words[2], "ioctl") ? SYS_ioctl : !strcmp(words[2], "madvise") ? SYS_madvise
               : SYS_mremap;
    size_t size = (size_t)1 << 30;
    char *block = NULL;
    if (count == 3) {
        block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        memset(block, 1, 8 << 20);
    }
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, rules};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    printf("filter %ld\n", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program));
    fflush(stdout);
    if (count > 3) {
        block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        memset(block, 1, 8 << 20);
    }
    usleep(700000);
    memset(block + (16 << 20), 2, 8 << 20);
    printf("%d\n", munmap(block + 4096, 4096));
    printf("%d %d\n", block[0], block[(24 << 20) - 1]);
    return 4;
}
