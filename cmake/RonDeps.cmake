# Everything comes from Debian packages (tools/setup installs them); nothing is vendored.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(DEPS REQUIRED IMPORTED_TARGET
    jansson libcurl openssl libmacaroons libprotobuf-c zlib libzstd sqlite3 libpq)
find_program(PROTOC_C protoc-c REQUIRED)
add_library(ron_deps INTERFACE)
target_link_libraries(ron_deps INTERFACE PkgConfig::DEPS Threads::Threads m)
