//! The version of a file: by which a change is noticed. Nothing here waits.

use std::fs::Metadata;
use std::io::{self, Read as _};
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};

use crate::tools::files::root::Place;

/// The size, in bytes, up to which a file is read as a whole: its lines are counted, it can be edited, and its version
/// is that of its content.
pub(super) const MAX_WHOLE: u64 = 64 * 1024 * 1024;

/// The version of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// The SHA-256 of the content.
    Content([u8; 32]),
    /// For a larger file: what the file system says of it.
    Status { bytes: u64, modified: Option<SystemTime>, file: u64 },
}

/// Computes the version of a file that is read in pieces.
#[derive(Default)]
pub(super) struct VersionHasher {
    hash: Sha256,
    bytes: u64,
}

impl VersionHasher {
    /// Adds the next piece.
    pub(super) fn update(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        if self.bytes <= MAX_WHOLE {
            self.hash.update(piece);
        }
    }

    /// The number of bytes so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the version. `metadata` is that of the file before its first piece was read.
    pub(super) fn finish(self, metadata: &Metadata) -> Version {
        match self.bytes <= MAX_WHOLE {
            true => Version::Content(self.hash.finalize().into()),
            false => Version::Status {
                bytes: metadata.len(),
                modified: metadata.modified().ok(),
                file: file_number(metadata),
            },
        }
    }
}

/// Returns the version of a file, read without a pause.
///
/// # Errors
///
/// When it is no regular file, or cannot be read.
pub(super) fn version_of(place: &Place, name: &std::ffi::OsStr) -> io::Result<Version> {
    let (mut file, metadata) = place.open_regular(name, false)?;
    let mut hasher = VersionHasher::default();
    let mut piece = vec![0; 64 * 1024];
    while hasher.bytes() <= MAX_WHOLE {
        match file.read(&mut piece)? {
            0 => break,
            read => hasher.update(&piece[..read]),
        }
    }
    Ok(hasher.finish(&metadata))
}

/// Returns the version of this content.
pub(super) fn version_of_bytes(bytes: &[u8]) -> Option<Version> {
    (bytes.len() as u64 <= MAX_WHOLE).then(|| Version::Content(Sha256::digest(bytes).into()))
}

#[cfg(unix)]
fn file_number(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn file_number(_metadata: &Metadata) -> u64 {
    0
}
