import { toBinary } from '@bufbuild/protobuf';
import { FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt';
import { describe, expect, it } from 'vitest';
import { descriptorFiles, descriptorSet } from '../../test/schema/descriptor-set.js';
import type { Facts } from '../../test/schema/facts.js';
import { readDescriptors } from './descriptors.js';

const facts: Facts = {
  messages: {
    'z.Base': [{ no: 1, name: 'at', type: 'google.protobuf.Timestamp' }],
    'a.Uses': [{ no: 1, name: 'base', type: 'z.Base' }],
  },
};

const files = descriptorFiles(facts);
const toBytes = (file: (typeof files)[number]) => toBinary(FileDescriptorProtoSchema, file);
const listNames = (list: readonly { readonly name: string }[]) => list.map(({ name }) => name);

describe('descriptors', () => {
  it('are read in any order and keep the one they came in', () => {
    const byName = files.toSorted((a, b) => (a.name < b.name ? -1 : 1)).map(toBytes);
    const { files: read, registry } = readDescriptors(byName);
    expect(listNames(read)).toEqual(['a/all', 'z/all']);
    expect(registry.getMessage('a.Uses')?.fields[0]?.message?.typeName).toBe('z.Base');
  });

  it('are the same as a set and as single files', () => {
    expect(listNames(readDescriptors(descriptorSet(facts)).files)).toEqual(['z/all', 'a/all']);
    expect(listNames(readDescriptors(files.map(toBytes)).files)).toEqual(['z/all', 'a/all']);
  });

  it('readDescriptors adds the standard files', () => {
    expect(
      readDescriptors(files.map(toBytes)).registry.getMessage('google.protobuf.Any'),
    ).toBeDefined();
  });

  it('may come twice', () => {
    const [first] = files.map(toBytes);
    const twice = [...files.map(toBytes), first as Uint8Array];
    expect(listNames(readDescriptors(twice).files)).toEqual(['z/all', 'a/all']);
  });

  it('readDescriptors drops and reports a missing import that only defines options', () => {
    const [base] = descriptorFiles(facts);
    if (!base) throw new Error('There is no file');
    base.dependency.push('amino/amino.proto');
    expect(readDescriptors([toBytes(base)]).notices).toEqual([
      'z/all.proto imports amino/amino.proto, which the descriptors do not include',
    ]);
  });

  it('readDescriptors throws for a missing type and names it', () => {
    const [, uses] = files.map(toBytes);
    expect(() => readDescriptors([uses as Uint8Array])).toThrow(/incomplete: .*z\.Base/);
  });

  it('readDescriptors leaves out a file that refers to a missing type, and warns of it', () => {
    const [, uses] = files.map(toBytes);
    const [other] = descriptorFiles({ messages: { 'o.Other': [] } }).map(toBytes);
    const { files: read, warnings } = readDescriptors([uses as Uint8Array, other as Uint8Array]);
    expect(listNames(read)).toEqual(['o/all']);
    expect(warnings).toEqual(['a/all.proto is not used: z.Base is not declared']);
  });

  it('readDescriptors leaves out a long chain of files whose last type is missing', () => {
    const length = 3000;
    const chain = Array.from({ length }, (_, i) => ({
      [`c${i}.Type`]: [{ no: 1, name: 'next', type: `c${i + 1}.Type` }],
    }));
    const all = [{ 'o.Other': [] }, ...chain]
      .flatMap((messages) => descriptorFiles({ messages }))
      .map(toBytes);
    const { files: read, warnings } = readDescriptors(all);
    expect(listNames(read)).toEqual(['o/all']);
    expect(warnings).toHaveLength(length);
    expect(warnings[0]).toBe(`c2999/all.proto is not used: c3000.Type is not declared`);
  });

  it('readDescriptors takes missing imports from the other source', () => {
    const [, uses] = files.map(toBytes);
    const { exact, warnings } = readDescriptors([uses as Uint8Array], descriptorSet(facts));
    expect(exact.getMessage('a.Uses')?.fields[0]?.message?.typeName).toBe('z.Base');
    expect(warnings).toEqual([]);
  });

  it.each([
    ['nothing', [], 'contain no file'],
    ['no descriptors', Uint8Array.of(10, 99, 1), 'Cannot parse'],
    ['an empty set', new Uint8Array(), 'contain no file'],
  ])('readDescriptors throws for %s', (_, bytes, reason) => {
    expect(() => readDescriptors(bytes)).toThrow(reason);
  });

  it('readDescriptors throws for circular imports', () => {
    const [base, uses] = descriptorFiles(facts);
    base?.dependency.push('a/all.proto');
    const both = [base, uses].flatMap((file) => (file ? [toBytes(file)] : []));
    expect(() => readDescriptors(both)).toThrow('imports itself');
  });
});
