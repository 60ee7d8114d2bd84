import { wire } from '../wire.js';
import { inner, type Row, time } from './row.js';

const TIMESTAMP = 'google.protobuf.Timestamp';
const DURATION = 'google.protobuf.Duration';

export const TIME_ROWS: readonly Row[] = [
  {
    title: 'Timestamp',
    field: { type: TIMESTAMP },
    full: [
      [time(1_577_934_245), '"2020-01-02T03:04:05Z"'],
      [time(1_577_934_245, 120_000_000), '"2020-01-02T03:04:05.120Z"'],
      [time(1_577_934_245, 120_000), '"2020-01-02T03:04:05.000120Z"'],
      [time(1_577_934_245, 1), '"2020-01-02T03:04:05.000000001Z"'],
      [time(-1, 999_999_999), '"1969-12-31T23:59:59.999999999Z"'],
      [time(951_782_400), '"2000-02-29T00:00:00Z"'],
      [time(-62_135_596_800), '"0001-01-01T00:00:00Z"'],
      [time(253_402_300_799), '"9999-12-31T23:59:59Z"'],
      [inner(wire), '"1970-01-01T00:00:00Z"'],
    ],
    absent: 'null',
  },
  {
    title: 'non-nullable Timestamp',
    field: { type: TIMESTAMP, nullable: false },
    full: [[time(1), '"1970-01-01T00:00:01Z"']],
    absent: '"1970-01-01T00:00:00Z"',
  },
  {
    title: 'stdtime',
    field: { type: TIMESTAMP, stdtime: true },
    full: [[time(1), '"1970-01-01T00:00:01Z"']],
    absent: 'null',
  },
  {
    title: 'non-nullable stdtime',
    field: { type: TIMESTAMP, stdtime: true, nullable: false },
    full: [[time(1), '"1970-01-01T00:00:01Z"']],
    absent: '"0001-01-01T00:00:00Z"',
  },
  {
    title: 'Duration',
    field: { type: DURATION },
    full: [
      [time(3600), '"3600s"'],
      [time(1, 500_000_000), '"1.500s"'],
      [time(0, 1), '"0.000000001s"'],
      [time(-1, -500_000), '"-1.000500s"'],
      [time(0, -500_000_000), '"-0.500s"'],
      [time(315_576_000_000), '"315576000000s"'],
      [inner(wire), '"0s"'],
    ],
    absent: 'null',
  },
  {
    title: 'non-nullable stdduration',
    field: { type: DURATION, stdduration: true, nullable: false },
    full: [[time(9_223_372_036, 854_775_807), '"9223372036.854775807s"']],
    absent: '"0s"',
  },
  {
    title: 'non-nullable Duration',
    field: { type: DURATION, nullable: false },
    full: [[time(5), '"5s"']],
    absent: '"0s"',
  },
];
