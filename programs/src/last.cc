// Allocates in the destructors of threads: of C++'s thread_local variables, and of keys in each of libc's rounds.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits.h>
#include <pthread.h>
#include <string>
#include <vector>

static std::atomic<long> wrong, ends;
static pthread_key_t keys[2];

static void use(size_t size) {
    char *block = static_cast<char *>(malloc(size));
    memset(block, 7, size);
    block = static_cast<char *>(realloc(block, 3 * size));
    for (size_t at = 0; at < size; at++) wrong += block[at] != 7;
    free(block);
}

struct Last {
    std::vector<std::string> strings;
    ~Last() {
        for (size_t i = 0; i < 50; i++) strings.emplace_back(1000 + 37 * i, 'x');
        for (const auto &string : strings) wrong += string.find_first_not_of('x') != std::string::npos;
        use(100000);
        ends++;
    }
};

static thread_local Last last;

struct Value {
    pthread_key_t key;
    int rounds;
    char *block;
};

static void end(void *what) {
    Value *value = static_cast<Value *>(what);
    for (int at = 0; at < 100; at++) wrong += value->block[at] != 3;
    free(value->block);
    value->block = static_cast<char *>(malloc(100));
    memset(value->block, 3, 100);
    use(20000);
    ends++;
    if (++value->rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
        pthread_setspecific(value->key, value);
    } else {
        free(value->block);
        delete value;
    }
}

static void *run(void *) {
    last.strings.emplace_back("xx");
    for (pthread_key_t key : keys) {
        Value *value = new Value{key, 0, static_cast<char *>(malloc(100))};
        memset(value->block, 3, 100);
        pthread_setspecific(key, value);
    }
    return malloc(33);
}

static long resident_mib() {
    long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (fscanf(file, "%ld %ld", &size, &resident) != 2) resident = -1;
    fclose(file);
    return resident / 256;
}

int main() {
    for (pthread_key_t &key : keys) pthread_key_create(&key, end);
    for (int round = 0; round < 100; round++) {
        pthread_t threads[4];
        for (pthread_t &thread : threads) pthread_create(&thread, nullptr, run, nullptr);
        for (pthread_t thread : threads) {
            void *block;
            pthread_join(thread, &block);
            free(block);
        }
    }
    // Where threads leave their memory behind, 400 of them leave some hundred MiB.
    printf("%ld wrong bytes, %ld ends, %s\n", wrong.load(), ends.load(), resident_mib() < 100 ? "little memory" : "much memory");
}
