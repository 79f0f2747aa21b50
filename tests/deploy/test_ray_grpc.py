"""test_ray.py again with Serve's deployments talking by gRPC, as Ray's makers recommend for throughput."""
# packages: ray[serve] aiohttp cffi
import os
import runpy

os.environ.update(RAY_SERVE_USE_GRPC_BY_DEFAULT="1", RAY_SERVE_THROUGHPUT_OPTIMIZED="1")
runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "test_ray.py"), run_name="__main__")
