"""deploy/caddy/Caddyfile, as it is, in front of three replicas."""
# packages: aiohttp
import os
import shutil
import subprocess

from balancer import full, trials_of
from fleet import ROOT, free_port
from trials import Skip, client, finish, trial

CADDY = shutil.which("caddy")


def start(replicas, folder):
    port = free_port()
    environment = dict(os.environ, REEL_LISTEN=f":{port}", REEL_REPLICAS=" ".join(f"127.0.0.1:{r.port}" for r in replicas),
                       XDG_DATA_HOME=folder, XDG_CONFIG_HOME=folder)
    process = subprocess.Popen([CADDY, "run", "--config", os.path.join(ROOT, "deploy", "caddy", "Caddyfile"), "--adapter", "caddyfile"],
                               env=environment, stderr=open(folder + "/log", "w"))
    return process, f"http://127.0.0.1:{port}"


if CADDY:
    version = subprocess.run([CADDY, "version"], capture_output=True, text=True).stdout.split()[0]
    trials_of("caddy", version, start, retries=False)
    full("caddy", version, start)
else:
    client("caddy", "none")

    @trial("all")
    def _():
        raise Skip("caddy is not installed")
finish()
