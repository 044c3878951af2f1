//! Arrays: opaque to the program, rows without gaps here.

use crate::abi::ArrayDescription;
use crate::model::work::op::Plane;

pub struct Array {
    pub description: ArrayDescription,
    pub base: u64,
}

impl Array {
    pub fn row_bytes(description: &ArrayDescription) -> u64 {
        let element = match description.format {
            0x01 | 0x08 => 1,
            0x02 | 0x09 | 0x10 => 2,
            _ => 4,
        };
        description.width as u64 * element * u64::from(description.channels.max(1))
    }

    pub fn bytes(description: &ArrayDescription) -> u64 {
        let (height, depth) = (description.height.max(1), description.depth.max(1));
        Array::row_bytes(description) * height as u64 * depth as u64
    }

    pub fn plane(&self) -> Plane {
        let pitch = Array::row_bytes(&self.description);
        Plane { base: self.base, pitch, slice: pitch * self.description.height.max(1) as u64 }
    }
}
