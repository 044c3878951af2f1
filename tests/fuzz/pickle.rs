//! Pickles written by hand, opcode by opcode, as no writer would write them.

/// A place in the memo.
pub type Place = u32;

#[derive(Clone)]
pub struct Pickle {
    pub bytes: Vec<u8>,
    places: Place,
}

impl Pickle {
    pub fn new() -> Pickle {
        Pickle { bytes: vec![0x80, 4], places: 0 }
    }

    pub fn raw(&mut self, bytes: &[u8]) -> &mut Pickle {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub fn text(&mut self, text: &str) -> &mut Pickle {
        self.raw(b"X").raw(&(text.len() as u32).to_le_bytes()).raw(text.as_bytes())
    }

    pub fn number(&mut self, number: u32) -> &mut Pickle {
        match number {
            0..256 => self.raw(&[b'K', number as u8]),
            256..65536 => self.raw(b"M").raw(&(number as u16).to_le_bytes()),
            _ => self.raw(b"J").raw(&number.to_le_bytes()),
        }
    }

    /// Stores the last object in the memo.
    pub fn keep(&mut self) -> Place {
        self.raw(&[0x94]);
        self.places += 1;
        self.places - 1
    }

    /// Stores the last object in the memo and removes it from the stack.
    pub fn keep_only(&mut self) -> Place {
        let place = self.keep();
        self.raw(b"0");
        place
    }

    pub fn again(&mut self, place: Place) -> &mut Pickle {
        match place {
            0..256 => self.raw(&[b'h', place as u8]),
            _ => self.raw(b"j").raw(&place.to_le_bytes()),
        }
    }

    /// Writes a frame whose texts are in the memo.
    pub fn frame(&mut self, name: Place, file: Place, line: u32) -> &mut Pickle {
        self.raw(b"}(").text("name").again(name).text("filename").again(file);
        self.text("line").number(line).raw(b"u")
    }

    /// Writes the keys that every entry has, and returns their places.
    pub fn keys(&mut self) -> Keys {
        let mut key = |text| {
            self.text(text);
            self.keep_only()
        };
        Keys {
            action: key("action"),
            alloc: key("alloc"),
            size: key("size"),
            frames: key("frames"),
            category: key("category"),
            metadata: key("user_metadata"),
            addr: key("addr"),
        }
    }

    /// Writes an allocation of 512 bytes at an address, with more keys.
    pub fn entry(
        &mut self,
        keys: &Keys,
        address: u32,
        more: impl FnOnce(&mut Pickle),
    ) -> &mut Pickle {
        self.raw(b"}(").again(keys.action).again(keys.alloc).again(keys.size).number(512);
        self.again(keys.addr).number(address);
        more(self);
        self.raw(b"u")
    }

    /// Writes a snapshot whose only device has the entries of `entries`, with the additional keys
    /// of `more`.
    pub fn snapshot(
        mut self,
        entries: impl FnOnce(&mut Pickle),
        more: impl FnOnce(&mut Pickle),
    ) -> Vec<u8> {
        self.raw(b"}(").text("segments").raw(b"]").text("device_traces").raw(b"](](");
        entries(&mut self);
        self.raw(b"ee");
        more(&mut self);
        self.raw(b"u.");
        self.bytes
    }
}

pub struct Keys {
    pub action: Place,
    pub alloc: Place,
    pub size: Place,
    pub frames: Place,
    pub category: Place,
    pub metadata: Place,
    pub addr: Place,
}
