//! A client from outside this project: cudarc's safe API, which finds the driver by `dlopen` and
//! `dlsym`, allocates in stream order if the device can, and frees when a value is dropped.

use cudarc::driver::{CudaContext, DriverError};

fn main() -> Result<(), DriverError> {
    let context = CudaContext::new(0)?;
    let stream = context.default_stream();
    let mut sum = 0u64;
    for round in 0..64u32 {
        let host: Vec<u32> = (0..4096).map(|index| index * round).collect();
        let device = stream.clone_htod(&host)?;
        let copy = stream.clone_dtod(&device)?;
        drop(device);
        let zeros = stream.alloc_zeros::<u32>(host.len())?;
        let back = stream.clone_dtoh(&copy)?;
        assert_eq!(back, host, "round {round}");
        assert!(stream.clone_dtoh(&zeros)?.iter().all(|word| *word == 0), "round {round}");
        sum += back.iter().map(|word| u64::from(*word)).sum::<u64>();
    }
    println!("cudarc: 64 rounds, sum {sum}");
    Ok(())
}
