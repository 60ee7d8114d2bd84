import { GrpcCode, GrpcError } from '@sibyl/grpc-client';
import { TOKEN_METADATA, TOKENS } from '../records/tokens.js';
import { found, paginate, required, type ServiceHandlers } from './service.js';

/** The code id of the token contract. */
const CONTRACT_CODE = '25';

export const tokenHandlers: ServiceHandlers = {
  Params: () => ({ params: { ixo1155_contract_code: CONTRACT_CODE } }),
  TokenMetadata(request) {
    const id = required(request, 'id');
    const metadata = TOKEN_METADATA.get(id);
    if (metadata) return metadata;
    throw new GrpcError(GrpcCode.notFound, `token ${id} not found`);
  },
  TokenList(request) {
    const minter = required(request, 'minter');
    const minted = TOKENS.filter((token) => token.minter === minter);
    const stored = minted.map((record) => ({ key: String(record.contract_address), record }));
    const { records, pagination } = paginate(stored, request.pagination);
    return { pagination, tokenDocs: records };
  },
  TokenDoc(request) {
    const minter = required(request, 'minter');
    const contract = required(request, 'contract_address');
    const matches = (token: (typeof TOKENS)[number]) =>
      token.minter === minter && token.contract_address === contract;
    return { tokenDoc: found(TOKENS, matches, `token ${contract} of ${minter}`) };
  },
};
