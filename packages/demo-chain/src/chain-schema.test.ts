import {
  create,
  createFileRegistry,
  fromBinary,
  getExtension,
  hasExtension,
} from '@bufbuild/protobuf';
import {
  type FileDescriptorProto,
  FileDescriptorProtoSchema,
  FileDescriptorSetSchema,
} from '@bufbuild/protobuf/wkt';
import { describe, expect, it } from 'vitest';
import { fileDescriptorsReply, loadChainSchema, reflectionStreams } from './chain-schema.js';

const QUERY_SERVICES = [
  'ixo.bonds.v1beta1.Query',
  'ixo.claims.v1beta1.Query',
  'ixo.entity.v1beta1.Query',
  'ixo.epochs.v1beta1.Query',
  'ixo.iid.v1beta1.Query',
  'ixo.liquidstake.v1beta1.Query',
  'ixo.mint.v1beta1.Query',
  'ixo.names.v1beta1.Query',
  'ixo.smartaccount.v1beta1.Query',
  'ixo.token.v1beta1.Query',
];

it('the schema of the demo chain declares ten query services with 59 routes', () => {
  const { registry } = loadChainSchema();
  const http = registry.getExtension('google.api.http');
  if (!http) throw new Error('google.api.http is missing');
  const methods = QUERY_SERVICES.flatMap((name) => registry.getService(name)?.methods ?? []);
  expect(methods).toHaveLength(59);
  for (const { proto } of methods) {
    if (!proto.options) throw new Error(`${proto.name} has no options`);
    expect(hasExtension(proto.options, http)).toBe(true);
    expect(getExtension(proto.options, http)).toMatchObject({ pattern: { case: 'get' } });
  }
});

const schema = loadChainSchema();
const SERVED = ['ixo.entity.v1beta1.Query', 'ixo.iid.v1beta1.Query'];
const streams = reflectionStreams(schema, SERVED);

it('FILE_DESCRIPTORS returns all files in one reply, sorted by name', () => {
  const { file } = fromBinary(FileDescriptorSetSchema, fileDescriptorsReply(schema));
  const names = file.map(({ name }) => name);
  expect(names).toEqual([...names].sort());
  expect(names).toHaveLength([...schema.registry.files].length);
});

describe.each(['v1', 'v1alpha'])('server reflection %s', (version) => {
  const ask = (request: Record<string, string | object>) => {
    const answer = streams[`grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`];
    const message = schema.encode(
      `grpc.reflection.${version}.ServerReflectionRequest`,
      request as never,
    );
    const reply = answer?.(message) ?? new Uint8Array();
    return schema.decode(`grpc.reflection.${version}.ServerReflectionResponse`, reply);
  };
  const readFiles = (reply: ReturnType<typeof ask>) => {
    const { file_descriptor_proto: files } = reply.file_descriptor_response as {
      file_descriptor_proto: string[];
    };
    return files.map((file) => fromBinary(FileDescriptorProtoSchema, Buffer.from(file, 'base64')));
  };

  it('reflectionStreams lists the served services', () => {
    expect(ask({ list_services: '*' })).toMatchObject({
      list_services_response: { service: SERVED.map((name) => ({ name })) },
    });
  });

  it('reflectionStreams returns a file by name, symbol and extension', () => {
    const name = 'ixo/entity/v1beta1/query.proto';
    expect(readFiles(ask({ file_by_filename: name }))[0]?.name).toBe(name);
    for (const symbol of [
      'ixo.entity.v1beta1.Query',
      'ixo.entity.v1beta1.Query.Entity',
      'ixo.entity.v1beta1.QueryEntityRequest',
    ]) {
      expect(readFiles(ask({ file_containing_symbol: symbol }))[0]?.name).toBe(name);
    }
    const extension = { containing_type: 'google.protobuf.FieldOptions', extension_number: 65001 };
    const [file] = readFiles(ask({ file_containing_extension: extension }));
    expect(file?.name).toBe('gogoproto/gogo.proto');
  });

  it('reflectionStreams returns every file that the schema of a service needs', () => {
    const inOrder = new Map<string, FileDescriptorProto>();
    const fetch = (name: string) => {
      if (inOrder.has(name)) return;
      const file = readFiles(ask({ file_by_filename: name })).find((one) => one.name === name);
      if (!file) throw new Error(`${name} is missing`);
      for (const imported of file.dependency) fetch(imported);
      inOrder.set(name, file);
    };
    fetch('ixo/entity/v1beta1/query.proto');
    const file = [...inOrder.values()];
    const registry = createFileRegistry(create(FileDescriptorSetSchema, { file }));
    expect(registry.getService('ixo.entity.v1beta1.Query')?.methods).toHaveLength(6);
  });

  it('reflectionStreams returns the extension numbers of a type', () => {
    const type = 'google.protobuf.MethodOptions';
    expect(ask({ all_extension_numbers_of_type: type })).toMatchObject({
      all_extension_numbers_response: { base_type_name: type, extension_number: [72295728] },
    });
  });

  it.each([
    { file_by_filename: 'no/such.proto' },
    { file_containing_symbol: 'no.such.Thing' },
    { all_extension_numbers_of_type: 'no.such.Thing' },
    { file_containing_extension: { containing_type: 'no.such.Thing', extension_number: 1 } },
  ])('reflectionStreams answers not found to %o', (request) => {
    expect(ask(request)).toMatchObject({
      original_request: request,
      error_response: { error_code: 5 },
    });
  });
});
