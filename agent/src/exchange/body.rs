//! Rows as frame bodies: partition ids, Arrow IPC metadata, buffers.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use tuplane_expr::arrow::array::{RecordBatch, UInt16Array};
use tuplane_expr::arrow::buffer::{Buffer, MutableBuffer, ScalarBuffer};
use tuplane_expr::arrow::datatypes::{Schema, SchemaRef};
use tuplane_expr::arrow::error::ArrowError;
use tuplane_expr::arrow::ipc::reader::read_record_batch;
use tuplane_expr::arrow::ipc::writer::{
    DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions,
};
use tuplane_expr::arrow::ipc::{MetadataVersion, root_as_message};
use tuplane_wire::frame::{FLAG_PARTITIONS, HEADER, Header};
use xxhash_rust::xxh3::xxh3_64;

use crate::engine::rows::{Budget, Rows};

/// Bytes to which each of a batch's buffers is padded: enough for every type that we carry.
const ALIGNMENT: usize = 16;

/// A fingerprint of column names and types: both ends of an edge must have the same.
pub(crate) fn fingerprint(schema: &Schema) -> u64 {
    let text: Vec<String> = schema
        .fields()
        .iter()
        .map(|f| format!("{}:{}:{}", f.name(), f.data_type(), f.is_nullable()))
        .collect();
    xxh3_64(text.join("\n").as_bytes())
}

/// A whole frame of rows; `header` has everything but the lengths, rows and charge. The sequence
/// number is written later, when the frame takes its place in a session.
pub(crate) fn encode(rows: &Rows, mut header: Header) -> Result<Vec<u8>, ArrowError> {
    let options = IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5)?;
    let (_, data) = IpcDataGenerator::default().encode(
        rows.batch(),
        &mut DictionaryTracker::new(true),
        &options,
        &mut IpcWriteContext::default(),
    )?;
    let ids = rows.partitions().map_or(0, |ids| ids.len() * 2);
    header.rows = rows.len() as u32;
    header.charge = rows.bytes();
    header.flags |= if ids > 0 { FLAG_PARTITIONS } else { 0 };
    header.ids_len = ids as u32;
    header.meta_len = data.ipc_message.len() as u32;
    header.body_len = data.arrow_data.len() as u32;
    let mut bytes = Vec::with_capacity(HEADER + header.parts() as usize);
    bytes.extend(header.encode());
    for id in rows.partitions().iter().flat_map(|ids| ids.values().iter()) {
        bytes.extend(id.to_le_bytes());
    }
    bytes.extend(&data.ipc_message);
    bytes.extend(&data.arrow_data);
    Ok(bytes)
}

/// The parts behind a header, read into buffers that arrow takes without copying.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) ids: Vec<u8>,
    pub(crate) meta: Vec<u8>,
    pub(crate) body: MutableBuffer,
}

impl Parts {
    /// Buffers for what a header announces.
    pub(crate) fn for_header(header: &Header) -> Self {
        Self {
            ids: vec![0; header.ids_len as usize],
            meta: vec![0; header.meta_len as usize],
            body: MutableBuffer::from_len_zeroed(header.body_len as usize),
        }
    }
}

/// The rows of a frame.
pub(crate) fn decode(
    header: &Header,
    parts: Parts,
    schema: &SchemaRef,
    budget: &Arc<Budget>,
) -> Result<Option<Rows>, ArrowError> {
    let message = root_as_message(&parts.meta).map_err(|e| ArrowError::IpcError(e.to_string()))?;
    let batch = message
        .header_as_record_batch()
        .ok_or_else(|| ArrowError::IpcError("a frame of rows holds no record batch".into()))?;
    let body: Buffer = parts.body.into();
    let batch: RecordBatch =
        read_record_batch(&body, batch, Arc::clone(schema), &HashMap::new(), None, &message.version())?;
    if batch.num_rows() != header.rows as usize {
        return Err(ArrowError::IpcError(format!(
            "a frame announces {} rows and holds {}",
            header.rows,
            batch.num_rows()
        )));
    }
    if header.charge < u64::from(header.rows) {
        return Err(ArrowError::IpcError("a frame counts fewer bytes than rows".into()));
    }
    let ids = if header.flags & FLAG_PARTITIONS == 0 {
        None
    } else {
        if parts.ids.len() != batch.num_rows() * 2 {
            return Err(ArrowError::IpcError("a frame's partition ids do not match its rows".into()));
        }
        let ids: Vec<u16> = parts.ids.chunks_exact(2).map(|id| u16::from_le_bytes([id[0], id[1]])).collect();
        Some(UInt16Array::new(ScalarBuffer::from(ids), None))
    };
    Ok(Rows::new(batch, ids, budget).map(|rows| rows.counted_as(header.charge)))
}

/// Writes the sequence number into an encoded frame.
pub(crate) fn number(mut frame: Vec<u8>, sequence: u64) -> Bytes {
    // Behind magic, version, kind, flags, run and six 32-bit fields.
    frame[40..48].copy_from_slice(&sequence.to_le_bytes());
    frame.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tuplane_expr::arrow::array::{Array, Int64Array, ListArray, StringArray};
    use tuplane_expr::arrow::datatypes::{DataType, Field, Int64Type};
    use tuplane_expr::system::{SystemColumn, SystemColumns, with_system};
    use tuplane_wire::frame::FrameKind;

    fn rows(n: usize, budget: &Arc<Budget>) -> Rows {
        let text: StringArray = (0..n).map(|i| (i % 5 != 0).then(|| format!("word {i}"))).collect();
        let list = ListArray::from_iter_primitive::<Int64Type, _, _>(
            (0..n).map(|i| Some((0..i % 4).map(|k| Some(k as i64)))),
        );
        let schema = Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("text", DataType::Utf8, true),
            Field::new("list", list.data_type().clone(), true),
        ]);
        let batch = RecordBatch::try_new(
            Arc::new(schema),
            vec![Arc::new(Int64Array::from_iter_values(0..n as i64)), Arc::new(text), Arc::new(list)],
        )
        .unwrap();
        let ids = UInt16Array::from_iter_values((0..n).map(|i| (i % 271) as u16));
        Rows::new(batch, Some(ids), budget).unwrap()
    }

    #[test]
    fn system_columns_count_in_the_fingerprint() {
        let own = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, true)]));
        let with = with_system(&own, SystemColumns::only(SystemColumn::At));
        assert_ne!(fingerprint(&own), fingerprint(&with));
    }

    #[test]
    fn a_frame_comes_back_with_its_number_and_charge() {
        let budget = Budget::new(1 << 30);
        let mut whole = rows(1000, &budget);
        drop(whole.cut(123));
        let slice = whole.cut(77);
        let frame = number(encode(&slice, Header::new(FrameKind::Rows)).unwrap(), 42);
        let header = Header::decode(frame[..HEADER].try_into().unwrap()).unwrap();
        assert_eq!((header.sequence, header.rows, header.charge), (42, 77, slice.bytes()));
        assert_eq!(frame.len(), HEADER + header.parts() as usize);
        // A slice's frame holds the slice and not the batch it was cut from.
        assert!(frame.len() < 3 * slice.bytes() as usize + 2000, "{}", frame.len());
        let mut parts = Parts::for_header(&header);
        let (ids, meta) = (header.ids_len as usize, header.meta_len as usize);
        parts.ids.copy_from_slice(&frame[HEADER..HEADER + ids]);
        parts.meta.copy_from_slice(&frame[HEADER + ids..HEADER + ids + meta]);
        parts.body.as_slice_mut().copy_from_slice(&frame[HEADER + ids + meta..]);
        let back = decode(&header, parts, &slice.batch().schema(), &budget).unwrap().unwrap();
        assert_eq!(back.batch(), slice.batch());
        assert_eq!(back.partitions(), slice.partitions());
        assert_eq!(back.bytes(), slice.bytes());
    }
}
