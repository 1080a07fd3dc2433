//! The one place that names bincode: values to bytes, versioned payloads, and tarpc's codec.

use std::io;
use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::version::ControlVersion;

/// Most bytes of one control frame; a longer one is refused by both sides.
pub const MAX_FRAME: usize = 8 << 20;

/// Most bytes of one payload: a frame less what tarpc puts around it, with room to spare.
pub const MAX_PAYLOAD: usize = 7 << 20;

/// Bounds what a decoded value may claim. Larger than a frame, since it counts sizes in memory and
/// numbers shrink on the wire; the frame's own bound holds before it.
const DECODE_LIMIT: usize = 64 << 20;

fn config() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<DECODE_LIMIT>()
}

/// Bytes that cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// A value that this format cannot hold.
    #[error("cannot encode {what}: {cause}")]
    Encode {
        /// The value's type.
        what: &'static str,
        /// Why.
        cause: String,
    },
    /// Bytes that are not such a value.
    #[error("cannot decode {what} from {len} bytes: {cause}")]
    Decode {
        /// The type asked for.
        what: &'static str,
        /// How many bytes there were.
        len: usize,
        /// Why.
        cause: String,
    },
    /// A payload of a version that this build does not read.
    #[error(
        "a message of control version {found}, but this build reads {} to {}: update the older side",
        ControlVersion::MIN.number(),
        ControlVersion::MAX.number()
    )]
    Version {
        /// Its version.
        found: u16,
    },
}

/// Encodes a value.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, CodecError> {
    bincode::serde::encode_to_vec(value, config())
        .map_err(|cause| CodecError::Encode { what: std::any::type_name::<T>(), cause: cause.to_string() })
}

/// Decodes a value; bytes left over are an error.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let fault =
        |cause: String| CodecError::Decode { what: std::any::type_name::<T>(), len: bytes.len(), cause };
    let (value, read) =
        bincode::serde::decode_from_slice(bytes, config()).map_err(|e| fault(e.to_string()))?;
    if read == bytes.len() {
        Ok(value)
    } else {
        Err(fault(format!("{} bytes are left over", bytes.len() - read)))
    }
}

/// A message as versioned bytes: two bytes of version, then the body. A payload that cannot be read
/// is an error of one call; tarpc only sees bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload(Vec<u8>);

impl Payload {
    /// Encodes a message in a version.
    pub fn encode<T: Serialize>(version: ControlVersion, message: &T) -> Result<Self, CodecError> {
        let mut bytes = version.number().to_be_bytes().to_vec();
        bytes.extend(encode(message)?);
        Ok(Self(bytes))
    }

    /// A payload as it came from elsewhere.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// All its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The version it says it has; 0 if it is too short to say.
    pub fn version_number(&self) -> u16 {
        match self.0[..] {
            [high, low, ..] => u16::from_be_bytes([high, low]),
            _ => 0,
        }
    }

    /// Decodes the message.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, CodecError> {
        let found = self.version_number();
        match ControlVersion::from_number(found) {
            Some(ControlVersion::V1) => decode(&self.0[2..]),
            None => Err(CodecError::Version { found }),
        }
    }
}

// By hand, since serde's own form of `Vec<u8>` goes byte by byte.
impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BytesVisitor;
        impl<'de> Visitor<'de> for BytesVisitor {
            type Value = Payload;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Payload, E> {
                Ok(Payload(bytes.to_vec()))
            }

            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Payload, E> {
                Ok(Payload(bytes))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Payload, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = seq.next_element()? {
                    bytes.push(byte);
                }
                Ok(Payload(bytes))
            }
        }
        deserializer.deserialize_byte_buf(BytesVisitor)
    }
}

/// tarpc's codec: both directions by the functions above.
#[derive(Debug, Clone, Copy, Default)]
pub struct Codec;

impl<T: Serialize> tokio_serde::Serializer<T> for Codec {
    type Error = io::Error;

    fn serialize(self: Pin<&mut Self>, item: &T) -> Result<Bytes, io::Error> {
        encode(item).map(Bytes::from).map_err(io::Error::other)
    }
}

impl<T: DeserializeOwned> tokio_serde::Deserializer<T> for Codec {
    type Error = io::Error;

    fn deserialize(self: Pin<&mut Self>, src: &BytesMut) -> Result<T, io::Error> {
        decode(src).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests;
