import { create, type UnknownField } from '@bufbuild/protobuf';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import {
  type FileDescriptorProto,
  MethodDescriptorProtoSchema,
  MethodOptionsSchema,
} from '@bufbuild/protobuf/wkt';

/**
 * Chain reflection, the only source over RPC, reports the files of a library that can be of a version no node was
 * released with. These are the differences to released nodes; files of server reflection have none of them.
 */
export function correctVersions(files: readonly FileDescriptorProto[]): void {
  for (const file of files) {
    if (file.package === 'cosmos.staking.v1beta1') dropHistoricalRecord(file);
    if (file.package === 'cosmos.bank.v1beta1') addOwnersByQuery(file);
  }
}

/** A field of an unreleased version, which would be printed as null. */
function dropHistoricalRecord(file: FileDescriptorProto): void {
  const reply = findMessage(file, 'QueryHistoricalInfoResponse');
  if (reply) reply.field = reply.field.filter(({ name }) => name !== 'historical_record');
}

const REQUEST = 'QueryDenomOwnersByQueryRequest';
const RESPONSE = 'QueryDenomOwnersByQueryResponse';

/** The method exists since SDK 0.50.4; a node without it answers 501. Its messages equal those of DenomOwners. */
function addOwnersByQuery(file: FileDescriptorProto): void {
  const query = file.service.find(({ name }) => name === 'Query');
  const isKnown = query?.method.some(({ name }) => name === 'DenomOwnersByQuery') ?? true;
  const request = copyMessage(file, 'QueryDenomOwnersRequest', REQUEST);
  const response = copyMessage(file, 'QueryDenomOwnersResponse', RESPONSE);
  if (isKnown || !request || !response) return;
  file.messageType.push(request, response);
  const options = create(MethodOptionsSchema);
  options.$unknown = [httpGet('/cosmos/bank/v1beta1/denom_owners_by_query')];
  query?.method.push(
    create(MethodDescriptorProtoSchema, {
      name: 'DenomOwnersByQuery',
      inputType: `.${file.package}.${REQUEST}`,
      outputType: `.${file.package}.${RESPONSE}`,
      options,
    }),
  );
}

function findMessage(file: FileDescriptorProto, name: string) {
  return file.messageType.find((message) => message.name === name);
}

function copyMessage(file: FileDescriptorProto, from: string, name: string) {
  const message = findMessage(file, from);
  return message && { ...message, name };
}

/** The extension `google.api.http` of method options; its field 2 is the path for GET. */
function httpGet(path: string): UnknownField {
  const rule = new BinaryWriter().tag(2, WireType.LengthDelimited).string(path).finish();
  const data = new BinaryWriter().bytes(rule).finish();
  return { no: 72295728, wireType: WireType.LengthDelimited, data };
}
