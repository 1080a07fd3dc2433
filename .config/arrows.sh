#!/bin/sh
# Holds the packages to the arrows of the design: what each may depend on, and nothing else.
set -eu
fail=0
direct() { # what a package pulls in directly, one name a line
    tree=$(cargo tree -p "$1" -e normal --depth 1 --prefix none) || {
        echo "cargo tree cannot say what $1 depends on" >&2
        exit 1
    }
    echo "$tree" | tail -n +2 | cut -d' ' -f1 | sort -u
}
allow() { # package, then a pattern of what it may pull in directly; each word of it must be in use
    package=$1
    pattern=$2
    names=$(direct "$package") || exit 1
    found=$(echo "$names" | grep -vxE "$pattern" || true)
    if [ -n "$found" ]; then
        echo "$package must not depend on: $(echo "$found" | tr '\n' ' ')" >&2
        fail=1
    fi
    for word in $(echo "$pattern" | tr '|' ' '); do
        if ! echo "$names" | grep -qxE "$word"; then
            echo "$package is allowed $word, and does without: take it off the list in .config/arrows.sh" >&2
            fail=1
        fi
    done
}
arrows() { # package, then a pattern of which of our own packages it may name
    package=$1
    pattern=$2
    names=$(direct "$package") || exit 1
    found=$(echo "$names" | grep -E '^tuplane' | grep -vxE "$pattern" || true)
    if [ -n "$found" ]; then
        echo "$package must not depend on: $(echo "$found" | tr '\n' ' ')" >&2
        fail=1
    fi
}
allow tuplane-core 'glob|jsonc-parser|serde|serde_json|stlrs|strsim|thiserror|toml|xxhash-rust'
allow tuplane-expr 'chrono|datafusion-.*|hashbrown|regex|thiserror|tuplane-core'
allow tuplane-wire 'bincode|bytes|futures|rcgen|serde|tarpc|thiserror|tokio|tokio-rustls|tokio-serde|tracing|tuplane-core'
arrows tuplane-agent 'tuplane-(expr|wire|core)'
arrows tuplane-testbed 'tuplane-(wire|core)'
arrows tuplane 'tuplane-(testbed|expr|wire|core)'
# core decides and touches nothing.
if grep -rnE 'std::(net|fs|thread)|SystemTime::now|Instant::now|tokio::' core/src; then
    echo "tuplane-core must touch no socket, file, thread or clock" >&2
    fail=1
fi
# Only core/expr names DataFusion, only the codec names bincode.
if grep -rnE 'datafusion' --include=*.rs agent core/src core/wire ctl testbed; then
    echo "only core/expr may name datafusion" >&2
    fail=1
fi
if grep -rnE 'bincode::' --include=*.rs agent core ctl testbed | grep -v 'core/wire/src/codec'; then
    echo "only core/wire/src/codec.rs may name bincode" >&2
    fail=1
fi
exit $fail
