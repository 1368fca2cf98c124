#!/usr/bin/env bash
# What `make install` puts in place is enough for a program outside of the tree: headers, library, pkg-config file.
#
#   install.sh [BUILD]    installs from BUILD (default: build) into a temporary folder and uses what is there
#
# Each test prints "ok NAME" or "not ok NAME"; the last line is "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/../.."

build=$(realpath --relative-to=. "${1:-build}")
tmp=$(mktemp -d)
prefix=/opt/shardgrad
root=$tmp/root$prefix
passed=0 failed=0
started=()
cleanup() {
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null; done
    wait
    rm -rf "$tmp"
}
trap cleanup EXIT

check() { # name, command...
    local name=$1
    shift
    if "$@" >"$tmp/output" 2>&1; then
        echo "ok $name"
        passed=$((passed + 1))
    else
        echo "not ok $name"
        tail -n 20 "$tmp/output" | sed 's/^/    /'
        failed=$((failed + 1))
    fi
}

flags() { # cflags or libs, of the installed package alone
    PKG_CONFIG_PATH=$root/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$tmp/root pkg-config "--$1" shardgrad
}

install_it() { make -s BUILD="$build" DESTDIR="$tmp/root" PREFIX="$prefix" install; }

programs_are_there() {
    local program
    for program in shardgrad shardgrad-ps shardgrad-worker shardgrad-yardstick; do test -x "$root/bin/$program" || return 1; done
}

exports() { nm -D --defined-only "$root/lib/libshardgrad.so" | awk '{ print $3 }'; }

only_sg_is_exported() { ! exports | grep -v '^sg_'; }

all_of_the_headers_is_exported() {
    local missing=0 name
    for name in $(grep -hE '^SG_API' "$root"/include/shardgrad/*.h | grep -oE '\bsg_[a-z_]+\(' | tr -d '('); do
        exports | grep -qx "$name" || { echo "$name is declared and not exported"; missing=1; }
    done
    [ "$missing" -eq 0 ]
}

has_a_soname() { readelf -d "$root/lib/libshardgrad.so" | grep -q 'SONAME.*\[libshardgrad\.so\.0\]'; }

headers_stand_alone_as() { # language, compiler, standard
    local header
    for header in "$root"/include/shardgrad/*.h; do
        "$2" -x "$1" -std="$3" -Wall -Wextra -Werror -fsyntax-only -I"$root/include" "$header" || return 1
    done
}

compile() { # example
    # shellcheck disable=SC2046 # flags are words
    ${CC:-cc} -std=c11 -Wall -Wextra -Werror -o "$tmp/$1" "worker/examples/$1.c" $(flags cflags) $(flags libs) -lm
}

cluster() { # folder, number of workers, settings of update...
    mkdir -p "$1"
    cat >"$1/cluster.yaml" <<YAML
job: install
ps: ["127.0.0.1:0", "127.0.0.1:0"]
workers: $2
run_dir: $1/run
start_timeout_ms: 20000
update:
  rule: sgd
  learning_rate: $3
YAML
}

start_ps() { # folder
    local index
    for index in 0 1; do
        timeout 60 "$root/bin/shardgrad-ps" --config "$1/cluster.yaml" --index "$index" >"$1/ps-$index.log" 2>&1 &
        started+=($!)
    done
}

await() { # what must end with 0, as the worker and both ps did
    local status=0 pid
    for pid in "$@"; do
        wait "$pid" && continue
        status=1
        kill "${started[@]}" 2>/dev/null
    done
    return $status
}

example_of_the_readme_runs() {
    [ "$(grep -cv '^$' worker/examples/minimal.c)" -le 15 ] || { echo "it has more than 15 lines"; return 1; }
    cluster "$tmp/minimal-run" 1 0.5
    start_ps "$tmp/minimal-run"
    (cd "$tmp/minimal-run" && LD_LIBRARY_PATH=$root/lib timeout 60 "$tmp/minimal") || return 1
    await "${started[@]}" || return 1
    started=()
}

example_of_the_readme_says_why_it_fails() { # without a ps
    cluster "$tmp/minimal-alone" 1 0.5
    sed -i 's/^start_timeout_ms: .*/start_timeout_ms: 100/' "$tmp/minimal-alone/cluster.yaml"
    (cd "$tmp/minimal-alone" && ! LD_LIBRARY_PATH=$root/lib timeout 60 "$tmp/minimal" >said) || return 1
    cat "$tmp/minimal-alone/said"
    grep -q 'ps 0' "$tmp/minimal-alone/said"
}

two_workers_find_what_none_could_alone() { # example
    cluster "$tmp/$1-run" 2 0.5
    local worker
    for worker in 1 0; do # workers before the ps: they wait
        LD_LIBRARY_PATH=$root/lib timeout 60 "$tmp/$1" "$tmp/$1-run/cluster.yaml" "$worker" &
        started+=($!)
    done
    start_ps "$tmp/$1-run"
    await "${started[@]}" || { cat "$tmp/$1-run"/*.log; return 1; }
    started=()
}

check "it installs" install_it
check "the programs are there" programs_are_there
check "the library exports nothing but sg_ names" only_sg_is_exported
check "the library exports all that the headers declare" all_of_the_headers_is_exported
check "the library has its soname" has_a_soname
check "each header stands alone as C" headers_stand_alone_as c "${CC:-cc}" c11
check "each header stands alone as C++" headers_stand_alone_as c++ "${CXX:-c++}" c++11
check "the example of the README compiles" compile minimal
check "the example of the README runs" example_of_the_readme_runs
check "the example of the README says why it fails" example_of_the_readme_says_why_it_fails
check "least_squares compiles outside of the tree" compile least_squares
check "least_squares finds what no worker could alone" two_workers_find_what_none_could_alone least_squares
check "overlapped compiles outside of the tree" compile overlapped
check "overlapped finds what no worker could alone" two_workers_find_what_none_could_alone overlapped
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
