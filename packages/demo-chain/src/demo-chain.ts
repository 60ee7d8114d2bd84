import type { DescMethod } from '@bufbuild/protobuf';
import { GrpcCode, GrpcError } from '@sibyl/grpc-client';
import {
  type ChainSchema,
  FILE_DESCRIPTORS,
  fileDescriptorsReply,
  reflectionStreams,
} from './chain-schema.js';
import type { MessageHandler, Query, QueryHandler, QueryResult } from './grpc-server.js';
import { claimsHandlers } from './queries/claims.js';
import { entityHandlers, iidHandlers, tokenHandlers } from './queries/entities.js';
import { epochsHandlers, nodeHandlers, tendermintHandlers } from './queries/node.js';
import type { Blocks, MethodHandler, ServiceHandlers } from './queries/service.js';

export interface DemoChainOptions {
  readonly schema: ChainSchema;
  readonly blocks: Blocks;
  /** The version the node reports. */
  readonly version?: string;
}

/** A chain without a network, for a gRPC or RPC server. */
export interface DemoChain {
  readonly answer: QueryHandler;
  readonly streams: Readonly<Record<string, MessageHandler>>;
}

interface Method {
  readonly desc: DescMethod;
  readonly answer: MethodHandler;
}

/** A small chain with records in entity, claims, token and iid; other services are not compiled in. */
export function createDemoChain(options: DemoChainOptions): DemoChain {
  const { schema, blocks } = options;
  const services: Record<string, ServiceHandlers> = {
    'cosmos.base.node.v1beta1.Service': nodeHandlers,
    'cosmos.base.tendermint.v1beta1.Service': tendermintHandlers(options.version ?? 'v1.0.0'),
    'ixo.claims.v1beta1.Query': claimsHandlers,
    'ixo.entity.v1beta1.Query': entityHandlers,
    'ixo.epochs.v1beta1.Query': epochsHandlers,
    'ixo.iid.v1beta1.Query': iidHandlers,
    'ixo.token.v1beta1.Query': tokenHandlers,
  };
  const methods = listMethods(schema, services);
  const files = fileDescriptorsReply(schema);
  const served = [...Object.keys(services), 'cosmos.reflection.v1.ReflectionService'];
  return {
    streams: reflectionStreams(schema, served),
    answer(query) {
      if (query.method === FILE_DESCRIPTORS) return { message: files };
      const method = methods.get(query.method);
      if (!method) throw new GrpcError(GrpcCode.unimplemented, `unknown method ${query.method}`);
      return runAt(heightFor(query, blocks), { query, method, options });
    },
  };
}

function listMethods(
  { registry }: ChainSchema,
  services: Readonly<Record<string, ServiceHandlers>>,
): Map<string, Method> {
  const methods = Object.entries(services).flatMap(([service, answers]) =>
    (registry.getService(service)?.methods ?? []).flatMap((desc): [string, Method][] => {
      const answer = answers[desc.name];
      return answer ? [[`${service}/${desc.name}`, { desc, answer }]] : [];
    }),
  );
  return new Map(methods);
}

interface RunOptions {
  readonly query: Query;
  readonly method: Method;
  readonly options: DemoChainOptions;
}

function runAt(height: number, { query, method, options }: RunOptions): QueryResult {
  const { schema, blocks } = options;
  try {
    const request = schema.decode(method.desc.input.typeName, query.request);
    const reply = method.answer(request, { height, blocks });
    return { height, message: schema.encode(method.desc.output.typeName, reply) };
  } catch (error) {
    if (error instanceof GrpcError) return { height, error };
    throw error;
  }
}

/** The height of a query; future and pruned heights fail with the messages of a node. */
function heightFor({ height }: Query, { latest, earliest }: Blocks): number {
  if (!height) return latest;
  if (height > latest) {
    const text = 'cannot query with height in the future; please provide a valid height';
    throw new GrpcError(GrpcCode.unknown, `${text}: invalid height`);
  }
  if (height >= earliest) return height;
  const text = `failed to load state at height ${height}; version does not exist (latest height: ${latest})`;
  throw new GrpcError(GrpcCode.unknown, `${text}: invalid request`);
}
