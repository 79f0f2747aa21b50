"""deploy/nginx/reel.conf, as it is, in front of three replicas."""
# packages: aiohttp
import os
import re
import shutil
import subprocess

from balancer import full, trials_of
from fleet import ROOT, free_port
from trials import client, finish, trial

NGINX = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")


def start(replicas, folder):
    port = free_port()
    shutil.copy(os.path.join(ROOT, "deploy", "nginx", "reel.conf"), folder)
    with open(os.path.join(ROOT, "deploy", "nginx", "nginx.conf")) as f:
        main = f.read()
    # What a trial changes: where pid and logs lie.
    main = main.replace("/run/nginx.pid", folder + "/pid").replace("/var/log/nginx/error.log warn", folder + "/error.log warn")
    main = main.replace("http {", f"http {{ client_body_temp_path {folder}/bodies; proxy_temp_path {folder}/answers; "
                        f"fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;")
    main = main.replace("worker_processes auto", "worker_processes 2").replace("worker_rlimit_nofile", "daemon off; " + ("user root; " if os.geteuid() == 0 else "") + "worker_rlimit_nofile")
    with open(folder + "/nginx.conf", "w") as f:
        f.write(main)
    with open(folder + "/reel-listen.conf", "w") as f:
        f.write(f"listen 127.0.0.1:{port};\naccess_log {folder}/access.log reel;\n")
    with open(folder + "/reel-replicas.conf", "w") as f:
        f.writelines(f"server 127.0.0.1:{r.port} max_fails=1 fail_timeout=2s;\n" for r in replicas)
    return subprocess.Popen([NGINX, "-p", folder, "-c", folder + "/nginx.conf", "-e", folder + "/error.log"]), f"http://127.0.0.1:{port}"


if NGINX:
    said = subprocess.run([NGINX, "-v"], capture_output=True, text=True).stderr
    version = re.search(r"nginx/([\d.]+)", said)[1]
    trials_of("nginx", version, start, retries=True)
    full("nginx", version, start)
else:
    from trials import Skip
    client("nginx", "none")

    @trial("all")
    def _():
        raise Skip("nginx is not installed")
finish()
