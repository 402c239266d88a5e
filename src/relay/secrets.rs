//! The secrets that sign messages, and the file that contains them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use parking_lot::Mutex;
use sha2::Sha256;
use tokio::signal::unix::Signal;
use tokio::task::spawn_blocking;

use crate::domain::MessageId;
use crate::net::regular_file;

/// Secrets that change with their file. Cheap to clone.
#[derive(Clone)]
pub struct Secrets {
    file: PathBuf,
    keys: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Secrets {
    /// Reads a file with one secret per line. Errors are for the operator and quote no part of the file.
    pub fn load(file: &Path) -> Result<Self, String> {
        let keys = parse(regular_file::read_at_start(file), file)?;
        Ok(Self { file: file.to_owned(), keys: Arc::new(Mutex::new(keys)) })
    }

    /// Returns the header `webhook-signature`: a signature for each secret. `timestamp` is in seconds since 1970.
    pub fn sign(&self, id: MessageId, timestamp: i64, body: &[u8]) -> String {
        let keys = self.keys.lock();
        let signatures = keys.iter().map(|key| {
            let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
            mac.update(format!("{id}.{timestamp}.").as_bytes());
            mac.update(body);
            format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
        });
        signatures.collect::<Vec<_>>().join(" ")
    }

    /// Reads the file again on each of these signals. Never ends.
    pub async fn follow(self, mut hangups: Signal) {
        loop {
            hangups.recv().await;
            let file = self.file.clone();
            let read = spawn_blocking(move || regular_file::read(&file)).await.unwrap_or_else(|why| Err(why.into()));
            match parse(read, &self.file) {
                Ok(keys) => {
                    tracing::info!(file = %self.file.display(), secrets = keys.len(), "relay secrets reloaded");
                    *self.keys.lock() = keys;
                }
                Err(why) => tracing::error!(why, "cannot use the new relay secrets, keeping the old ones"),
            }
        }
    }
}

/// Parses the text of `file`, if it could be read.
fn parse(read: io::Result<Vec<u8>>, file: &Path) -> Result<Vec<Vec<u8>>, String> {
    let text = read.map_err(|error| format!("{}: {error}", file.display()))?;
    // Windows programs write a byte order mark at the start of a file.
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let keys: Option<Vec<_>> = lines.map(key).collect();
    match keys {
        Some(keys) if (1..=2).contains(&keys.len()) => Ok(keys),
        _ => Err(format!(
            "{} must have one secret, or two while one is replaced, each on a line: whsec_ and 24 to 64 bytes in base64; \
             echo \"whsec_$(head -c 32 /dev/urandom | base64)\" makes one",
            file.display()
        )),
    }
}

fn key(line: &[u8]) -> Option<Vec<u8>> {
    let bytes = STANDARD.decode(line.strip_prefix(b"whsec_")?).ok()?;
    (24..=64).contains(&bytes.len()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn signature_is_that_of_a_known_example() {
        // Calculated by Python's hmac. tests/contract verifies signatures with the libraries of the specification.
        let keys = parse(Ok(ONE.into()), Path::new("secrets")).unwrap();
        let secrets = Secrets { file: PathBuf::new(), keys: Arc::new(Mutex::new(keys)) };
        let id = MessageId::parse("msg_01978a4be2c07d3e8f5a6b7c8d9e0f10").unwrap();
        let signature = secrets.sign(id, 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,+hGCspS9uJ0VP9NYy4fcJLYBRUYc6tybvxnNl75b6U8=");
    }

    #[test]
    fn file_has_one_or_two_secrets_of_24_to_64_bytes() {
        let count = |text: &str| parse(Ok(text.into()), Path::new("secrets")).map(|keys| keys.len());
        assert_eq!(count(ONE), Ok(1));
        assert_eq!(count(&format!("\n{ONE}\r\n \n{ONE}\n")), Ok(2));
        assert_eq!(count(&format!("\u{feff}{ONE}\r\n")), Ok(1));
        let of = |bytes: usize| format!("whsec_{}", STANDARD.encode(vec![7; bytes]));
        assert_eq!((count(&of(24)), count(&of(64))), (Ok(1), Ok(1)));
        let three = format!("{ONE}\n{ONE}\n{ONE}");
        let wrong = ["", "\n", &three, &of(23), &of(65), &ONE[6..], &ONE[..30], "whsec_s3cret", "# s3cret"];
        for wrong in wrong {
            let why = count(wrong).unwrap_err();
            assert!(why.starts_with("secrets must have one secret") && !why.contains("s3cret"), "{wrong}: {why}");
        }
    }
}
