#!/bin/sh
# Builds, as static libraries for a wheel, what reel links: from Debian's source packages, by the compiler
# that is named, into FOLDER/lib and FOLDER/include. What is there already is left alone.
# usage: wheel_libraries.sh TARGET FOLDER SOURCES
#   TARGET   x86_64 or aarch64
#   FOLDER   with bin/cc, bin/ar and bin/ranlib, which compile for the target
#   SOURCES  where apt-get source puts, or finds, the packages
set -eu
target=$1
mkdir -p "$2" "$3"
folder=$(cd "$2" && pwd)
sources=$(cd "$3" && pwd)
work=$folder/work
mkdir -p "$work" "$folder/lib/pkgconfig" "$folder/include"
PATH=$folder/bin:$PATH
host=$target-linux-gnu
CC=$folder/bin/cc AR=$folder/bin/ar RANLIB=$folder/bin/ranlib
CFLAGS='-O2 -fPIC -fvisibility=hidden -g0'
export CC AR RANLIB CFLAGS
jobs=$(nproc)

# What apt knows of the release for this architecture, apart from what it knows of this machine.
case $target in x86_64) debian=amd64 ;; aarch64) debian=arm64 ;; *) echo "no target $target" >&2 && exit 2 ;; esac
apt() {
    state=$sources/apt-$debian
    if [ ! -e "$state/ready" ]; then
        mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
        for kind in deb deb-src; do
            echo "$kind [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main"
        done >"$state/sources.list"
        : >"$state/status"
    fi
    command=$1
    shift
    apt-get -o APT::Architecture="$debian" -o APT::Architectures="$debian" -o Dir::Etc::sourcelist="$state/sources.list" \
        -o Dir::Etc::sourceparts=- -o Dir::State::lists="$state/lists" -o Dir::State::status="$state/status" \
        -o Dir::Cache="$state/cache" -o APT::Sandbox::User=root "$command" "$@"
}
# apt_get COMMAND PACKAGE: into the folder of sources
apt_get() {
    cd "$sources"
    [ -e "apt-$debian/ready" ] || { quietly apt apt update && : >"apt-$debian/ready"; }
    quietly apt apt "$@"
}
# source_of PACKAGE: its unpacked folder, in $source
source_of() {
    for source in "$work/$1"-*/; do [ -d "$source" ] && source=${source%/} && return; done
    ls "$sources/$1"_*.orig.tar.* >/dev/null 2>&1 || apt_get source --download-only "$1"
    cd "$work"
    quietly "$1" dpkg-source --no-check -x "$(find "$sources" -maxdepth 1 -name "$1_*.dsc" | head -n 1)"
    for source in "$work/$1"-*/; do source=${source%/}; done
}
# built LIBRARY: whether it is there
built() { [ -e "$folder/lib/$1" ]; }
# quietly NAME COMMAND...: shows what the command printed if it fails
quietly() {
    name=$1
    shift
    echo "     $target $name" >&2
    "$@" >>"$work/$name.log" 2>&1 || {
        tail -n 30 "$work/$name.log" >&2
        exit 1
    }
}
configured() { # configured NAME OPTION...: configure, make, make install
    name=$1
    shift
    cd "$source"
    [ -x configure ] || quietly "$name" autoreconf --install --force
    quietly "$name" ./configure --host="$host" --prefix="$folder" --libdir="$folder/lib" --disable-shared --enable-static "$@"
    quietly "$name" make -j"$jobs"
    quietly "$name" make install
}

utf8proc() {
    source_of utf8proc
    cd "$source"
    quietly utf8proc make libutf8proc.a CC="$CC" AR="$AR" CFLAGS="$CFLAGS -std=c99"
    cp libutf8proc.a "$folder/lib"
    cp utf8proc.h "$folder/include"
}
jansson() {
    source_of jansson
    configured jansson
}
nettle() { # hashes alone: public keys would want gmp
    source_of nettle
    configured nettle --disable-public-key --disable-documentation --disable-openssl
}
soxr() {
    source_of libsoxr
    mkdir -p "$source/made"
    cd "$source/made"
    quietly soxr cmake .. -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR="$target" -DCMAKE_C_COMPILER="$CC" \
        -DCMAKE_AR="$AR" -DCMAKE_RANLIB="$RANLIB" -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS="$CFLAGS" \
        -DBUILD_SHARED_LIBS=OFF -DBUILD_TESTS=OFF -DBUILD_EXAMPLES=OFF -DWITH_OPENMP=OFF -DWITH_LSR_BINDINGS=OFF \
        -DWITH_AVFFT=OFF -DCMAKE_POLICY_VERSION_MINIMUM=3.5
    quietly soxr make -j"$jobs" soxr
    cp src/libsoxr.a "$folder/lib"
    cp ../src/soxr.h "$folder/include"
}
microhttpd() { # without TLS, which would want gnutls
    source_of libmicrohttpd
    configured microhttpd --disable-https --disable-doc --disable-examples --disable-tools --disable-curl --disable-messages
}
wslay() { # Debian's own shared library, which needs glibc 2.17 at most; the wheel carries it beside the command
    for package in libwslay1 libwslay-dev; do
        ls "$sources/$package"_*_"$debian".deb >/dev/null 2>&1 || apt_get download "$package"
        quietly wslay dpkg -x "$(find "$sources" -maxdepth 1 -name "${package}_*_$debian.deb" | head -n 1)" "$work/wslay"
    done
    cp -r "$work/wslay/usr/include/wslay" "$folder/include"
    cp -L "$work/wslay/usr/lib/$host/libwslay.so.1" "$folder/lib/libwslay.so.1"
    ln -sf libwslay.so.1 "$folder/lib/libwslay.so"
}
mbedtls() {
    source_of mbedtls
    cd "$source"
    quietly mbedtls make -C library -j"$jobs" static CC="$CC" AR="$AR" CFLAGS="$CFLAGS"
    cp library/libmbed*.a "$folder/lib"
    cp -r include/mbedtls include/psa "$folder/include"
}
curl() { # HTTP and HTTPS alone, by mbedtls
    source_of curl
    off=''
    for what in dict file ftp gopher imap ldap ldaps mqtt pop3 rtsp smb smtp telnet tftp manual alt-svc hsts ntlm \
        ntlm-wb tls-srp unix-sockets libcurl-option negotiate-auth aws cookies doh form-api mime netrc; do
        off="$off --disable-$what"
    done
    # shellcheck disable=SC2086 # a list of words
    configured curl --with-mbedtls="$folder" --without-zlib --without-brotli --without-zstd --without-libpsl \
        --without-libidn2 --without-nghttp2 --without-libssh2 --without-librtmp --without-ca-bundle \
        --without-ca-path --enable-threaded-resolver $off
}

built libutf8proc.a || utf8proc
built libjansson.a || jansson
built libnettle.a || nettle
built libsoxr.a || soxr
built libmicrohttpd.a || microhttpd
built libwslay.so || wslay
built libmbedtls.a || mbedtls
built libcurl.a || curl
