# JAX: a multilayer perceptron trained with Adam under jit and scan, and functions that use CUDA's libraries.
# XLA_PYTHON_CLIENT_ALLOCATOR=platform makes every buffer a cudaMalloc and a cudaFree.
#
# needs: jax
import os

os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0")
import jax
import jax.numpy as jnp
import numpy

print(f"backend {jax.default_backend()}")
WIDTHS = [32, 128, 128, 4]


def initial(key):
    keys = jax.random.split(key, len(WIDTHS))
    return [
        (jax.random.normal(k, (i, o)) / numpy.sqrt(i), jnp.zeros(o)) for k, i, o in zip(keys, WIDTHS[:-1], WIDTHS[1:])
    ]


def predict(params, x):
    for weights, bias in params[:-1]:
        x = jax.nn.relu(x @ weights + bias)
    return x @ params[-1][0] + params[-1][1]


def loss(params, x, y):
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(predict(params, x)) * y, axis=1))


def step(state, batch):
    params, first, second, count = state
    value, gradients = jax.value_and_grad(loss)(params, *batch)
    count += 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)
    params = jax.tree.map(
        lambda p, m, v: p - 0.01 * (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8), params, first, second
    )
    return (params, first, second, count), value


key = jax.random.PRNGKey(0)
x = jax.random.normal(key, (20, 256, WIDTHS[0]))
labels = jnp.argmax(x[..., :4], axis=-1)
y = jax.nn.one_hot(labels, 4)
params = initial(key)
zeros = jax.tree.map(jnp.zeros_like, params)
epoch = jax.jit(lambda state, x, y: jax.lax.scan(step, state, (x, y)), donate_argnums=0)
one = jax.jit(step, donate_argnums=0)
state = (params, zeros, jax.tree.map(jnp.zeros_like, params), jnp.zeros(()))
for number in range(4):
    if number % 2:
        for i in range(20):
            state, value = one(state, (x[i], y[i]))
    else:
        state, values = epoch(state, x, y)
        value = values[-1]
    accuracy = jnp.mean(jnp.argmax(predict(state[0], x.reshape(-1, WIDTHS[0])), 1) == labels.reshape(-1))
    print(f"epoch {number}: loss {float(value):.5f}, accuracy {float(accuracy):.4f}")

matrix = jax.random.normal(key, (96, 96))
positive = matrix @ matrix.T + 96 * jnp.eye(96)
print(f"cholesky {float(jnp.linalg.cholesky(positive).sum()):.3f}, solve {float(jnp.linalg.solve(positive, matrix).sum()):.4f}")
print(f"svd {float(jnp.linalg.svd(matrix, compute_uv=False)[0]):.4f}, eigh {float(jnp.linalg.eigh(positive)[0][-1]):.3f}")
print(f"fft {float(jnp.abs(jnp.fft.fft2(matrix)).sum()):.2f}")
image = jax.random.normal(key, (4, 3, 32, 32))
kernel = jax.random.normal(key, (8, 3, 3, 3))
print(f"convolution {float(jnp.abs(jax.lax.conv(image, kernel, (1, 1), 'SAME')).sum()):.1f}")
print(f"sort {float(jnp.sort(image.reshape(-1))[::97].sum()):.4f}")


def on_host(v):
    return numpy.asarray(v) * 2


doubled = jax.jit(lambda v: jax.pure_callback(on_host, jax.ShapeDtypeStruct(v.shape, v.dtype), v + 1))
print("callbacks", sum(int(doubled(jnp.arange(1000 + i)).sum()) for i in range(10)))
each = jax.vmap(jax.grad(lambda a, b: jnp.tanh(a @ b).sum()), in_axes=(0, None))
print(f"gradients of each {float(each(matrix, matrix[0]).sum()):.4f}")
total = 0
for i in range(40):  # to the device and back, sizes all different
    there = jax.device_put(numpy.arange(1000 + 777 * i, dtype=numpy.int32))
    total += int(jax.device_get(there[::3]).sum())
    there.delete()
print("transfers", total)
