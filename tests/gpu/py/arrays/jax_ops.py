# JAX: compiled functions, a small training loop, donated buffers. The environment selects XLA's allocator.
#
# needs: jax
import os

os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0")
import jax
import jax.numpy as jnp

print(f"backend {jax.default_backend()}, {len(jax.devices())} devices")


@jax.jit
def integers(n):
    x = jnp.arange(4096, dtype=jnp.int32) * n
    return jnp.sort(x % 1009)[::7].sum() + jnp.cumsum(x % 13)[-1]


print("integers", sum(int(integers(i)) for i in range(1, 40)))


def loss(params, x, y):
    hidden = jnp.tanh(x @ params[0])
    return jnp.mean((hidden @ params[1] - y) ** 2)


def update(params, x, y):
    gradients = jax.grad(loss)(params, x, y)
    return [p - 0.1 * g for p, g in zip(params, gradients)]


update = jax.jit(update, donate_argnums=0)
key = jax.random.PRNGKey(0)
params = [jax.random.normal(key, (64, 256)) * 0.1, jax.random.normal(key, (256, 8)) * 0.1]
x = jax.random.normal(key, (512, 64))
y = jax.random.normal(key, (512, 8))
first = float(loss(params, x, y))
for _ in range(100):
    params = update(params, x, y)
last = float(loss(params, x, y))
print(f"loss {first:.6f} -> {last:.6f}")

total = 0
for i in range(30):  # arrays of changing sizes come and go
    block = jnp.ones((1000 + 300 * i, 64), dtype=jnp.int32) * i
    total += int(block.sum())
    del block
print("total", total)
