import type { DescMessage } from '@bufbuild/protobuf';

const GO_PRINTED = new Set([
  'cosmos.staking.v1beta1.DelegationResponse',
  'cosmos.staking.v1beta1.RedelegationResponse',
]);

/** Whether a message's Go type prints itself by `encoding/json` when it is the value of a field. */
export function isGoPrinted(type: DescMessage): boolean {
  return GO_PRINTED.has(type.typeName);
}
