/* Becomes a program under the seccomp filter that a file holds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **words) {
    static struct sock_filter rules[BPF_MAXINSNS];
    if (count < 3) return 2;
    int file = open(words[1], O_RDONLY);
    long length = read(file, rules, sizeof rules);
    close(file);
    struct sock_fprog program = {length / sizeof *rules, rules};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) return perror("seccomp"), 1;
    execvp(words[2], words + 2);
    return perror(words[2]), 1;
}
