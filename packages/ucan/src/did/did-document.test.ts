import { describe, expect, it } from 'vitest';
import { encodeBase58 } from '../codec/bytes.js';
import { readDocumentKeys } from './did-document.js';

const DID = 'did:ixo:ixo1abc';
const KEY = Uint8Array.from({ length: 32 }, (_, i) => i + 1);
const HEX = Buffer.from(KEY).toString('hex');
const MULTIBASE = `z${encodeBase58(Uint8Array.from([0xed, 0x01, ...KEY]))}`;

const method = (fields: object, id = `${DID}#1`) => ({
  id,
  type: 'Ed25519VerificationKey2018',
  controller: DID,
  ...fields,
});
const signing = (fields: object) => ({
  id: DID,
  verificationMethod: [method(fields)],
  authentication: [`${DID}#1`],
});
const keyNumber = (n: number) => Buffer.alloc(32, n).toString('hex');
const keys = (document: unknown) => readDocumentKeys(document, DID, 'required');

describe('key material', () => {
  it.each([
    ['base58', { publicKeyBase58: encodeBase58(KEY) }],
    ['hex', { publicKeyHex: HEX }],
    ['upper-case hex', { publicKeyHex: HEX.toUpperCase() }],
    ['z and multicodec', { publicKeyMultibase: MULTIBASE }],
    ['Multikey', { type: 'Multikey', publicKeyMultibase: MULTIBASE }],
    ['F and hex', { publicKeyMultibase: `F${HEX.toUpperCase()}` }],
    ['f and hex', { publicKeyMultibase: `f${HEX}` }],
    ['f, multicodec and hex', { publicKeyMultibase: `fed01${HEX}` }],
    ['the 2020 type', { type: 'Ed25519VerificationKey2020', publicKeyMultibase: MULTIBASE }],
    ['protobuf names', { public_key_hex: HEX }],
    ['empty others', { publicKeyMultibase: '', publicKeyBase58: null, publicKeyHex: HEX }],
  ])('is read from %s', (_, fields) => {
    expect(keys(signing(fields)).ok).toEqual([KEY]);
  });

  it.each([
    ['secp256k1', { type: 'EcdsaSecp256k1VerificationKey2019', publicKeyHex: `02${HEX}` }],
    [
      'secp256k1 in F',
      { type: 'EcdsaSecp256k1VerificationKey2019', publicKeyMultibase: `F03${HEX}` },
    ],
    ['an account', { type: 'CosmosAccountAddress', blockchainAccountID: 'ixo1abc' }],
    ['X25519 of the same length', { type: 'X25519KeyAgreementKey2019', publicKeyHex: HEX }],
    ['raw bytes of unknown kind', { type: 'Multikey', publicKeyHex: HEX }],
    ['z without multicodec', { publicKeyMultibase: `z${encodeBase58(KEY)}` }],
    [
      'z of secp256k1',
      { publicKeyMultibase: `z${encodeBase58(Uint8Array.from([0xe7, 1, ...KEY, 1]))}` },
    ],
    ['another multibase', { publicKeyMultibase: `u${HEX}` }],
    ['a short key', { publicKeyHex: HEX.slice(2) }],
    ['a long key', { publicKeyHex: `${HEX}00` }],
    ['odd hex', { publicKeyHex: HEX.slice(1) }],
    ['no hex', { publicKeyHex: 'g'.repeat(64) }],
    ['no base58', { publicKeyBase58: '0'.repeat(44) }],
    ['endless base58', { publicKeyBase58: 'z'.repeat(100_000) }],
    ['a number', { publicKeyHex: 7 }],
    ['no type', { type: undefined, publicKeyHex: HEX }],
    ['nothing', {}],
  ])('is not read from %s', (_, fields) => {
    expect(keys(signing(fields)).error).toEqual({
      code: 'did_invalid',
      detail: 'the DID document lets no Ed25519 key sign',
    });
  });
});

describe('relationships', () => {
  const verificationMethod = [method({ publicKeyHex: HEX })];

  it.each([
    'authentication',
    'assertionMethod',
    'capabilityInvocation',
    'capabilityDelegation',
    'assertion_method',
  ])('a key under %s signs', (name) => {
    expect(keys({ id: DID, verificationMethod, [name]: [`${DID}#1`] }).ok).toEqual([KEY]);
    expect(keys({ id: DID, verificationMethod, [name]: ['#1'] }).ok).toEqual([KEY]);
    expect(keys({ id: DID, [name]: [method({ publicKeyHex: HEX })] }).ok).toEqual([KEY]);
  });

  it.each([
    ['keyAgreement alone', { keyAgreement: [`${DID}#1`] }],
    ['none', {}],
    ['another key', { authentication: [`${DID}#2`] }],
    ["another DID's key", { authentication: ['did:ixo:other#1'] }],
  ])('a key under %s does not', (_, fields) => {
    expect(keys({ id: DID, verificationMethod, ...fields }).error?.code).toBe('did_invalid');
  });

  it('meet relative method ids', () => {
    const relative = [method({ publicKeyHex: HEX }, '#1')];
    expect(
      keys({ id: DID, verificationMethod: relative, authentication: [`${DID}#1`] }).ok,
    ).toEqual([KEY]);
  });

  it('may be assumed only when the source gives none of them', () => {
    const assumed = (fields: object) =>
      readDocumentKeys({ id: DID, verificationMethod, ...fields }, DID, 'assumed');
    expect(assumed({}).ok).toEqual([KEY]);
    expect(assumed({ authentication: null }).ok).toEqual([KEY]);
    expect(assumed({ authentication: [] }).error?.code).toBe('did_invalid');
    expect(assumed({ capabilityDelegation: [`${DID}#2`] }).error?.code).toBe('did_invalid');
  });
});

describe('documents', () => {
  const many = (count: number) => ({
    id: DID,
    verificationMethod: Array.from({ length: count }, (_, i) =>
      method({ publicKeyHex: keyNumber(i + 1) }, `${DID}#${i}`),
    ),
    authentication: Array.from({ length: count }, (_, i) => `${DID}#${i}`),
  });

  it('may have eight keys and not nine', () => {
    expect(keys(many(8)).ok).toHaveLength(8);
    expect(keys(many(9)).error?.code).toBe('did_invalid');
  });

  it('may have 64 signing methods of any kind and not more', () => {
    const account = { type: 'CosmosAccountAddress', blockchainAccountID: 'ixo1abc' };
    const withAccounts = (count: number) => ({
      id: DID,
      authentication: [method({ publicKeyHex: HEX }), ...new Array(count).fill(method(account))],
    });
    expect(keys(withAccounts(63)).ok).toEqual([KEY]);
    expect(keys(withAccounts(64)).error?.code).toBe('did_invalid');
  });

  it('count one key once, however often it is named', () => {
    const verificationMethod = Array.from({ length: 9 }, (_, i) =>
      method({ publicKeyHex: HEX }, `${DID}#${i}`),
    );
    const authentication = verificationMethod.map(({ id }) => id);
    expect(keys({ id: DID, verificationMethod, authentication }).ok).toEqual([KEY]);
  });

  it('keep the Ed25519 keys among others', () => {
    const other = method(
      { type: 'EcdsaSecp256k1VerificationKey2019', publicKeyHex: `02${HEX}` },
      '#2',
    );
    const document = signing({ publicKeyHex: HEX });
    const verificationMethod = [other, ...document.verificationMethod];
    expect(keys({ ...document, verificationMethod, authentication: ['#1', '#2'] }).ok).toEqual([
      KEY,
    ]);
  });

  it.each([
    ['no document', null],
    ['a list', []],
    ['no id', { ...signing({ publicKeyHex: HEX }), id: undefined }],
    ["another DID's", { ...signing({ publicKeyHex: HEX }), id: 'did:ixo:ixo1abd' }],
    ['the id in other case', { ...signing({ publicKeyHex: HEX }), id: DID.toUpperCase() }],
    ['methods that are no list', { id: DID, verificationMethod: {}, authentication: ['#1'] }],
    ['methods that are no objects', { id: DID, verificationMethod: ['#1'] }],
    ['relationships that are no list', { id: DID, authentication: 'x' }],
    [
      'one relationship that is a text',
      {
        ...signing({ publicKeyHex: HEX }),
        assertionMethod: 'x',
      },
    ],
    [
      'a relationship to a number',
      {
        ...signing({ publicKeyHex: HEX }),
        assertionMethod: [7],
      },
    ],
    ['relationships to numbers', { id: DID, authentication: [1] }],
    ['relationships to lists', { id: DID, authentication: [[`${DID}#1`]] }],
    ['very many relationships', { id: DID, authentication: new Array(150_000).fill('#1') }],
  ])('with %s are invalid', (_, document) => {
    expect(keys(document).error?.code).toBe('did_invalid');
  });

  it.each([
    [{ metadata: { deactivated: true } }],
    [{ metadata: { deactivated: 'true' } }],
    [{ deactivated: true }],
  ])('with %j are deactivated', (fields) => {
    const document = { ...signing({ publicKeyHex: HEX }), ...fields };
    expect(keys(document).error?.code).toBe('did_deactivated');
  });

  it('that say they are not deactivated are not', () => {
    const document = { ...signing({ publicKeyHex: HEX }), metadata: { deactivated: false } };
    expect(keys(document).ok).toEqual([KEY]);
  });
});
