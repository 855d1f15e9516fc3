/* Handlers of faults on pages that the program protects itself, on a stack of their own, timers while memory is touched, a signal
   that is waited for, and an end by a signal. */
#define _GNU_SOURCE
#include <signal.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <unistd.h>

static char *block;
static const size_t size = (size_t)64 << 20;
static volatile int faults, ticks;
static sigjmp_buf back;

static void fault(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    char *at = info->si_addr;
    if (at < block || at >= block + size) siglongjmp(back, info->si_code);
    mprotect((char *)((size_t)at & ~(size_t)4095), 4096, PROT_READ | PROT_WRITE);
    faults++;
}

static void tick(int signal) { (void)signal, ticks++; }

static int deep(int n) {
    volatile char own[10000];
    own[n % 10000] = 1;
    return deep(n + 1) + own[0];
}

int main(int count, char **words) {
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGSEGV, &action, NULL);
    block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(block, 1, size);
    mprotect(block, size, PROT_READ);
    for (size_t at = 0; at < size; at += 65536) block[at] = 2;
    printf("%d faults\n", faults);
    mprotect(block, size, PROT_READ | PROT_WRITE);
    int code = sigsetjmp(back, 1);
    if (!code) *(volatile char *)8 = 1;
    printf("wild access %d\n", code);
    if (!sigsetjmp(back, 1)) deep(0);
    puts("stack overflow");
    signal(SIGALRM, tick);
    struct itimerval every = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &every, NULL);
    long wrong = 0;
    for (int round = 0; ticks < 50 && round < 200; round++) {
        char *other = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(other, round, 4 << 20);
        wrong += (unsigned char)other[(4 << 20) - 1] != (unsigned char)round;
        munmap(other, 4 << 20);
    }
    memset(&every, 0, sizeof every);
    setitimer(ITIMER_REAL, &every, NULL);
    printf("%s, %ld wrong\n", ticks ? "ticks" : "no tick", wrong);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int descriptor = signalfd(-1, &set, 0);
    kill(getpid(), SIGUSR1);
    struct signalfd_siginfo info;
    printf("%zd %d\n", read(descriptor, &info, sizeof info), (int)info.ssi_signo);
    kill(getpid(), SIGUSR2);
    int got;
    sigwait(&set, &got);
    printf("%d\n", got);
    fflush(stdout);
    if (count > 1) raise(atoi(words[1]));
    return 0;
}
