#!/bin/sh
# try_container.sh ENGINE IMAGE [OPTION...]
# Runs IMAGE with ENGINE (podman or docker) and its OPTIONs, the root read-only, no capability, a volume for the cache: the
# demo model answers, the server answers with the mounted key alone, its health check passes, and it ends at SIGTERM.
#   PORT  of this machine (18080)
set -eu
[ $# -ge 2 ] || { echo "usage: try_container.sh podman|docker IMAGE [OPTION...]" >&2; exit 2; }
engine=$1 image=$2
shift 2
port=${PORT:-18080}
name=reel-try-$$
work=$(mktemp -d)
trap '"$engine" rm -f "$name" >/dev/null 2>&1 || true; "$engine" volume rm -f "$name" >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
chmod 755 "$work"
echo key-of-the-proof >"$work/keys"
chmod 644 "$work/keys"
run() { "$engine" run --read-only --cap-drop all --security-opt no-new-privileges "$@"; }

[ "$("$engine" image inspect -f '{{.Config.User}}' "$image")" = 10001:10001 ]
text=$(run --rm "$@" "$image" run demo --temp 0 -n 12 "The morning after the ball, Emma" 2>/dev/null)
[ -n "$text" ]
echo "$image: reel run demo: $text"
[ "$(run --rm --entrypoint id "$@" "$image" -u)" = 10001 ]
if run --rm --entrypoint touch "$@" "$image" /etc/reel/new 2>/dev/null; then echo "the root can be written" && exit 1; fi
if run --rm "$@" "$image" >"$work/out" 2>&1; then echo "it serves at every address without a key" && exit 1; fi
grep -q /etc/reel/keys "$work/out"
echo "$image: user 10001, no file outside volumes can be written, refuses to serve without keys: $(head -n 1 "$work/out")"

case " $* " in *" --network=host "*) publish='' port=8080 ;; *) publish="-p 127.0.0.1:$port:8080" ;; esac
# shellcheck disable=SC2086 # two words or none
run -d --name "$name" $publish -v "$name:/var/cache/reel" -v "$work/keys:/etc/reel/keys:ro" "$@" "$image" >/dev/null
ask() { curl -s -m 10 -o "$work/body" -w '%{http_code}' "$@" || true; }
for _ in $(seq 100); do
    [ "$(ask "http://127.0.0.1:$port/health")" != 200 ] || break
    sleep 0.1
done
[ "$(ask "http://127.0.0.1:$port/health")" = 200 ] || { "$engine" logs "$name"; exit 1; }
[ "$(ask "http://127.0.0.1:$port/v1/models")" = 401 ]
[ "$(ask -H 'Authorization: Bearer key-of-the-proof' "http://127.0.0.1:$port/v1/completions" \
    -d '{"model": "demo", "prompt": "The morning after", "max_tokens": 8}')" = 200 ]
grep -q '"text"' "$work/body"
# The image's own command, as the engine would run it.
"$engine" exec "$name" bash -c "exec 3<>/dev/tcp/127.0.0.1/8080 && printf 'GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3 && head -n 1 <&3 | grep -q ' 200 '"
"$engine" stop -t 30 "$name" >/dev/null
code=$("$engine" inspect -f '{{.State.ExitCode}}' "$name")
[ "$code" = 0 ] || { "$engine" logs "$name"; echo "exit status $code" && exit 1; }
echo "$image: 200 on /health, 401 without a key, completes a text with it, health check passes, ends at SIGTERM with 0"
