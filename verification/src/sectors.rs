//! Writes to a disk, which writes a sector completely or not at all.

use testkit::Random;

const SECTOR: u64 = 512;

/// Writes `bytes` at `offset` and lengthens the content if needed.
pub fn put(content: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + bytes.len());
    if content.len() < end {
        content.resize(end, 0);
    }
    content[start..end].copy_from_slice(bytes);
}

/// Writes a random subset of the sectors.
pub fn tear(content: &mut Vec<u8>, offset: u64, bytes: &[u8], random: &mut Random) {
    let mut done = 0;
    while done < bytes.len() {
        let start = offset + done as u64;
        let end = bytes.len().min(done + (SECTOR - start % SECTOR) as usize);
        if random.below(2) == 0 {
            put(content, start, &bytes[done..end]);
        }
        done = end;
    }
}
