/** A file of a user. */
export interface FileRow {
  owner: string;
  id: string;
  name: string;
  media_type: string;
  /** What is reserved while the file is being uploaded. */
  size: number;
  /** SHA-256; null unless the file is ready. */
  hash: string | null;
  status: 'uploading' | 'ready' | 'deleting';
  /** Where its chunks are. */
  storage: 'database' | 's3';
  chunk_bytes: number;
  text_status: 'pending' | 'ready' | 'none' | 'failed';
  text_error: string | null;
  text_unit: 'page' | 'sheet' | 'paragraph' | 'line' | null;
  text_count: number | null;
  text_complete: number | null;
  /** How often reading its text was begun. */
  attempts: number;
  /** Until when a host reads its text. */
  lease_until: number | null;
  created_at: number;
  updated_at: number;
  /** The model of its vectors; null until all of its passages have one. */
  vector_model: string | null;
}

/** The meaning of a passage. */
export interface PassageVectorRow {
  owner: string;
  file_id: string;
  n: number;
  vector: Uint8Array;
}

export interface FileChunkRow {
  owner: string;
  file_id: string;
  n: number;
  data: Uint8Array;
}

/** A piece of the text of a file. */
export interface PassageRow {
  owner: string;
  file_id: string;
  n: number;
  /** The number of the page, sheet, paragraph or line it begins with. */
  place: number;
  position: string;
  /** Words that stand for its owner and its file in the full-text index. */
  scope: string;
  text: string;
}
