# JAX: arrays that are created and dropped, and a compiled step. JAX may allocate in pages of 2 MiB, so all sizes are
# multiples of that.
#
# needs: jax
import jax
import numpy


@jax.jit
def step(weights, batch):
    return weights - 0.01 * jax.grad(lambda w: ((batch @ w) ** 2).mean())(weights)


weights = jax.device_put(numpy.full((1024, 512), 0.01, numpy.float32))  # tensor: 2097152 x 1
kept = []
for number in range(10):
    kept.append(jax.device_put(numpy.full(1 << 20, number, numpy.float32)))  # tensor: 4194304 x 10
    batch = jax.device_put(numpy.full((512, 1024), 0.1 * number, numpy.float32))  # tensor: 2097152 x 10
    weights = step(weights, batch)
    del batch
print(f"weights {float(weights.sum()):.6f}, kept {sum(float(array.sum()) for array in kept):.0f}")
