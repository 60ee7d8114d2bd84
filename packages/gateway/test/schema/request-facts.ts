import type { Facts, FieldFact } from './facts.js';

const REQUEST = 'test.Request';

const PAGE_REQUEST: readonly FieldFact[] = [
  { no: 1, name: 'key', type: 'bytes' },
  { no: 2, name: 'offset', type: 'uint64' },
  { no: 3, name: 'limit', type: 'uint64' },
  { no: 4, name: 'count_total', type: 'bool' },
  { no: 5, name: 'reverse', type: 'bool' },
];

/** A service whose requests have every kind of field a URL or a body can set. */
export const REQUEST_FACTS: Facts = {
  enums: { 'test.Status': { 0: 'STATUS_NONE', 1: 'STATUS_OPEN', 2: 'STATUS_CLOSED' } },
  messages: {
    'cosmos.base.query.v1beta1.PageRequest': PAGE_REQUEST,
    'test.Reply': [{ no: 1, name: 'ok', type: 'bool' }],
    'test.PacketId': [
      { no: 1, name: 'port_id', type: 'string' },
      { no: 2, name: 'channel_id', type: 'string' },
      { no: 3, name: 'sequence', type: 'uint64' },
    ],
    [REQUEST]: [
      { no: 1, name: 'id', type: 'string' },
      { no: 2, name: 'height', type: 'int64' },
      { no: 3, name: 'small', type: 'int32' },
      { no: 4, name: 'big', type: 'uint64' },
      { no: 5, name: 'is_open', type: 'bool' },
      { no: 6, name: 'status', type: 'test.Status' },
      { no: 7, name: 'data', type: 'bytes' },
      { no: 8, name: 'ratio', type: 'double' },
      { no: 9, name: 'events', type: 'string', repeated: true },
      { no: 10, name: 'sequences', type: 'uint64', repeated: true },
      { no: 11, name: 'packet_id', type: 'test.PacketId' },
      { no: 12, name: 'at', type: 'google.protobuf.Timestamp' },
      { no: 13, name: 'lasts', type: 'google.protobuf.Duration' },
      { no: 14, name: 'maybe', type: 'google.protobuf.UInt64Value' },
      { no: 15, name: 'amount', type: 'string', customtype: 'cosmossdk.io/math.Int' },
      { no: 16, name: 'price', type: 'string', customtype: 'cosmossdk.io/math.LegacyDec' },
      { no: 17, name: 'labels', type: 'map<string, string>' },
      { no: 18, name: 'text_choice', type: 'string', oneof: 'choice' },
      { no: 19, name: 'number_choice', type: 'uint32', oneof: 'choice' },
      { no: 20, name: 'fields', type: 'google.protobuf.FieldMask' },
      { no: 21, name: 'statuses', type: 'test.Status', repeated: true },
      { no: 22, name: 'zig', type: 'sint64' },
      { no: 23, name: 'fixed', type: 'fixed32' },
      { no: 24, name: 'share', type: 'float' },
      { no: 25, name: 'maybe_text', type: 'string', optional: true },
    ],
    'test.PageOf': [
      { no: 1, name: 'owner', type: 'string' },
      { no: 2, name: 'pagination', type: 'cosmos.base.query.v1beta1.PageRequest' },
    ],
  },
  services: {
    'test.Query': {
      Get: { request: REQUEST, response: 'test.Reply', path: '/test/get' },
      ById: { request: REQUEST, response: 'test.Reply', path: '/test/id/{id}' },
      ByStatus: { request: REQUEST, response: 'test.Reply', path: '/test/status/{status}/{big}' },
      Packets: {
        request: REQUEST,
        response: 'test.Reply',
        path: '/test/{packet_id.channel_id}/{packet_id.sequence}/of/{sequences}',
      },
      Deep: { request: REQUEST, response: 'test.Reply', path: '/test/deep/{id=**}' },
      List: { request: 'test.PageOf', response: 'test.Reply', path: '/test/list/{owner}' },
      Send: {
        request: REQUEST,
        response: 'test.Reply',
        path: '/test/send',
        verb: 'post',
        body: '*',
      },
      SendTo: {
        request: REQUEST,
        response: 'test.Reply',
        path: '/test/send/{id}',
        verb: 'post',
        body: 'packet_id',
      },
    },
  },
};
