"""
JupyterHub for a team: everybody signs in and gets a JupyterLab of their own with gpuguide and its notebooks.

usage: jupyterhub --config deploy/jupyterhub_config.py

gpuguide, JupyterLab and jupyterhub stand in one environment. Who may sign in, and how, is the one thing to add: a file
of your own that says `load_subconfig("deploy/jupyterhub_config.py")` and then `c.JupyterHub.authenticator_class = ...`.
Settings from the environment: HUB_ADDRESS, HUB_MOST_SERVERS, HUB_IDLE_MINUTES.
"""

import os
import sys

from gpuguide.app.serve import notebooks_folder

c = get_config()  # noqa: F821 - JupyterHub puts it there

# A proxy in front brings the certificate.
c.JupyterHub.bind_url = os.environ.get("HUB_ADDRESS", "http://127.0.0.1:8000")

# A reader takes a server and a kernel for each open notebook: see "Sizes" in docs/deploy.md.
c.JupyterHub.active_server_limit = int(os.environ.get("HUB_MOST_SERVERS", "60"))
# Starting takes some seconds of a core; many at once would starve those who work.
c.JupyterHub.concurrent_spawn_limit = max(2, os.cpu_count() or 2)

c.Spawner.cmd = [sys.executable, "-m", "jupyterhub.singleuser"]
c.Spawner.notebook_dir = str(notebooks_folder())
c.Spawner.default_url = "/lab/tree/index.ipynb"
c.Spawner.environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
c.Spawner.http_timeout = c.Spawner.start_timeout = 120

# First the kernels of forgotten tabs, then the server itself: both come back with one click.
idle_s = round(60 * float(os.environ.get("HUB_IDLE_MINUTES", "45")))
c.Spawner.args = [
    f"--MappingKernelManager.cull_idle_timeout={idle_s}",
    f"--MappingKernelManager.cull_interval={min(60, idle_s)}",
    "--MappingKernelManager.cull_connected=True",
    f"--ServerApp.shutdown_no_activity_timeout={2 * idle_s}",
]
