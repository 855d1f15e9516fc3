// A plugin in C++: strings, containers and exceptions that pass between it and its host's memory.
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <vector>

static std::map<int, std::string> kept = {{1, "from the constructor, long enough to be allocated"}};

extern "C" {
void take(void *block) { free(block); }
char *give(int size) {
    std::vector<std::string> all(100, kept[1]);
    try {
        throw std::runtime_error(all[size % 100] + std::to_string(size));
    } catch (const std::exception &error) {
        return static_cast<char *>(realloc(strdup(error.what()), 200 + size));
    }
}
char *grow(char *block, size_t size) { return static_cast<char *>(realloc(block, size)); }
char *by_libc(int which) { return strdup(std::to_string(which).c_str()); }
void *map(size_t size) { return mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
int unmap(void *place, size_t size) { return munmap(place, size); }
}
