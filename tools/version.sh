#!/bin/sh
# version.sh          prints the version that include/reel.h says
# version.sh --check  looks whether every other place says the same, and every public function is in the list of symbols
# version.sh --set X.Y.Z  writes it everywhere; before 1.0 a new minor version also renames the shared library's package
set -eu
cd "$(dirname "$0")/.."
header=include/reel.h
read_version() { sed -n 's/^#define REEL_VERSION_[A-Z]* \([0-9]*\)$/\1/p' "$header" | paste -sd.; }
so_version() { echo "$1" | sed 's/^\(0\.[0-9]*\).*/\1/; t; s/\..*//'; }
version=$(read_version)
# Pages and files that name an archive, a package, a tag, an image or the library of this version, and no other.
naming="docs/PACKAGES.md docs/PYTHON.md include/reel.h deploy/kubernetes/reel-cpu.yaml deploy/kubernetes/reel-gpu.yaml
        deploy/kserve/runtime.yaml"
whole='(reel[-_:]|libreel\.so\.|\bv|"|image: reel:)' # before X.Y.Z
series='(libreel\.so\.|libreel)'                     # before the part of it that is in the library's name

check() {
    bad=0
    so=$(so_version "$version")
    says() { # says PLACE FOUND WANTED
        [ "$2" = "$3" ] && return
        echo "$1 says \"$2\", $header $version: it must say \"$3\" (tools/version.sh --set $version writes it)"
        bad=1
    }
    names() { grep -oE "$2" "$1" | sed 's/.*[^0-9.]//; s/^\.//' | sort -u | paste -sd' '; } # names FILE EXPRESSION
    says debian/changelog "$(sed -n '1s/^reel (\(.*\)-[^-]*).*/\1/p' debian/changelog)" "$version"
    says dist/reel.spec "$(sed -n 's/^Version: *//p' dist/reel.spec)" "$version"
    says "dist/reel.spec, soversion" "$(sed -n 's/^%global soversion *//p' dist/reel.spec)" "$so"
    says dist/Containerfile "$(sed -n 's/^ARG VERSION=//p' dist/Containerfile)" "$version"
    says debian/control "$(sed -n 's/^Package: \(libreel[0-9.]*\)$/\1/p' debian/control)" "libreel$so"
    says "debian/control, dependencies" "$(grep -o 'libreel[0-9][0-9.]*' debian/control | sort -u | paste -sd' ')" "libreel$so"
    says debian/ "$(find debian -maxdepth 1 -name 'libreel[0-9]*' | sed 's|.*/||; s/\.[a-z-]*$//' | sort -u | paste -sd' ')" "libreel$so"
    says "debian/libreel$so.lintian-overrides" "$(sed -n 's/^\(libreel[0-9.]*\):.*/\1/p' "debian/libreel$so.lintian-overrides")" "libreel$so"
    says "debian/libreel$so.symbols" "$(sed -n '1p' "debian/libreel$so.symbols")" "libreel.so.$so libreel$so #MINVER#"
    [ ! -e python/pyproject.toml ] || ! grep -q '^version' python/pyproject.toml ||
        says python/pyproject.toml "$(sed -n 's/^version *= *"\(.*\)"/\1/p' python/pyproject.toml)" "$version"
    says "dist/reel.spec, its newest change" "$(sed -n '/^%changelog/{n;s/.* - \(.*\)-1$/\1/p}' dist/reel.spec)" "$version"
    says "CHANGELOG.md, its newest part (to be written by hand)" "$(sed -n 's/^## //p' CHANGELOG.md | head -n 1)" "$version"
    for file in $naming; do
        [ -e "$file" ] || continue
        found=$(names "$file" "${whole}[0-9]+\.[0-9]+\.[0-9]+")
        says "$file" "$found" "${found:+$version}"
        found=$(names "$file" "${series}[0-9]+(\.[0-9]+)*")
        says "$file, the library" "$found" "$(for one in $found; do [ "$one" = "$version" ] || one=$so; echo "$one"; done | sort -u | paste -sd' ')"
    done
    declared=$(sed 's|/\*.*\*/||' include/*.h | grep -o '\breel_[a-z_0-9]*(' | tr -d '(' | sort -u)
    listed=$(sed -n 's/^ \(reel_[a-z_0-9]*\)@.*/\1/p' "debian/libreel$so.symbols" | sort -u)
    for name in $declared; do
        echo "$listed" | grep -qx "$name" || {
            echo "debian/libreel$so.symbols lacks $name: add the line \" $name@Base $version\""
            bad=1
        }
    done
    for name in $listed; do
        echo "$declared" | grep -qx "$name" || {
            echo "debian/libreel$so.symbols lists $name, which no header declares any more: the library's name must change"
            bad=1
        }
    done
    [ $bad -eq 0 ] || exit 1
    echo "every place says $version, $(echo "$listed" | wc -l) functions are listed"
}

set_version() {
    new=$1
    echo "$new" | grep -qxE '(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)' || {
        echo "version.sh: \"$new\" is no version: three numbers with points between them are wanted, such as 0.3.0" >&2
        exit 2
    }
    old_so=$(sed -n 's/^Package: libreel\([0-9.]*\)$/\1/p' debian/control)
    new_so=$(so_version "$new")
    IFS=. read -r major minor patch <<END
$new
END
    sed -i "s/^\(#define REEL_VERSION_MAJOR\) .*/\1 $major/; s/^\(#define REEL_VERSION_MINOR\) .*/\1 $minor/
            s/^\(#define REEL_VERSION_PATCH\) .*/\1 $patch/" "$header"
    sed -i "s/^\(Version: *\).*/\1$new/; s/^\(%global soversion *\).*/\1$new_so/" dist/reel.spec
    for file in $naming; do
        [ ! -e "$file" ] || sed -i -E "s/$whole$version\b/\1$new/g; s/$series$old_so\b/\1$new_so/g" "$file"
    done
    grep -q "^\* .* - $new-1$" dist/reel.spec || {
        # As in debian/changelog: the date is the last entry's until someone writes another.
        sed -i "/^%changelog/{n;s/^\(.*\) - .*/\1 - $new-1\n- New version; CHANGELOG.md says what it brings.\n\n&/}" dist/reel.spec
    }
    sed -i "s/^ARG VERSION=.*/ARG VERSION=$new/" dist/Containerfile
    [ ! -e python/pyproject.toml ] || sed -i "s/^\(version *= *\)\".*\"/\1\"$new\"/" python/pyproject.toml
    case $(sed -n 1p debian/changelog) in
    "reel ($new-"*) ;;
    *)
        entry=$(mktemp)
        # The date is the last entry's until someone writes another: nothing here depends on the clock.
        { printf 'reel (%s-1) unstable; urgency=medium\n\n  * New version; CHANGELOG.md says what it brings.\n\n' "$new"
            sed -n '/^ -- /{p;q}' debian/changelog
            echo
            cat debian/changelog; } >"$entry"
        cat "$entry" >debian/changelog
        rm -f "$entry"
        ;;
    esac
    if [ "$old_so" != "$new_so" ]; then
        # A library of a new name owes nothing to the old one's symbols.
        for file in debian/libreel"$old_so".*; do
            mv "$file" "debian/libreel$new_so${file#debian/libreel"$old_so"}"
        done
        sed -i "s/libreel$old_so\b/libreel$new_so/g" debian/control "debian/libreel$new_so.lintian-overrides"
        sed -i "1s/.*/libreel.so.$new_so libreel$new_so #MINVER#/; s/@Base .*/@Base $new/" "debian/libreel$new_so.symbols"
    fi
    version=$new
    check
}

case ${1:-} in
'') echo "$version" ;;
--check) check ;;
--set) set_version "${2:-}" ;;
*) echo "usage: version.sh [--check | --set X.Y.Z]" >&2 && exit 2 ;;
esac
