#!/bin/sh
# Makes sure that the browser tests find a Chromium: one that is installed, else Debian's, else the driver's own.
# usage: tools/browser.sh PLAYWRIGHT     Another browser: CHROMIUM=/path/to/chrome make test
set -u
playwright=$1

# The same names as in tests/conftest.py.
found() {
    [ -n "${CHROMIUM:-}" ] && [ -x "$CHROMIUM" ] && return 0
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        command -v "$name" >/dev/null 2>&1 && return 0
    done
    return 1
}

found && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "No Chromium found; installing Debian's for the browser tests."
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null
    found && exit 0
fi
echo "No Chromium found; asking Playwright for its own."
"$playwright" install chromium && exit 0
echo "The browser tests need Chromium: install it (apt install chromium, brew install chromium) or name one, CHROMIUM=/path/to/chrome make test" >&2
exit 1
