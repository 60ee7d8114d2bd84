import { create, toBinary } from '@bufbuild/protobuf';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import {
  FieldDescriptorProto_Label,
  FieldDescriptorProto_Type,
  FileDescriptorProtoSchema,
  FileDescriptorSetSchema,
  MethodOptionsSchema,
} from '@bufbuild/protobuf/wkt';

export interface SmallMethod {
  /** Such as `cosmos.tx.v1beta1.Service/BroadcastTx`. */
  readonly name: string;
  readonly http: 'get' | 'post';
  readonly path: string;
}

const HTTP_OPTION = 72295728;
const HTTP_RULE = { get: 2, post: 4, body: 7 };

/** A FileDescriptorSet of methods that all take and give one message with a string `text`. */
export function smallDescriptors(methods: readonly SmallMethod[]): Uint8Array {
  const file = methods.map(({ name, http, path }, i) => {
    const [service = '', method = ''] = name.split('/');
    const dot = service.lastIndexOf('.');
    const type = `.${service.slice(0, dot)}.Note`;
    const options = create(MethodOptionsSchema);
    options.$unknown = [httpOption(http, path)];
    return create(FileDescriptorProtoSchema, {
      name: `small/${i}.proto`,
      package: service.slice(0, dot),
      syntax: 'proto3',
      messageType: [{ name: 'Note', field: [TEXT_FIELD] }],
      service: [
        {
          name: service.slice(dot + 1),
          method: [{ name: method, inputType: type, outputType: type, options }],
        },
      ],
    });
  });
  return toBinary(FileDescriptorSetSchema, create(FileDescriptorSetSchema, { file }));
}

/** A message of these descriptors. */
export function buildNote(text: string): Uint8Array {
  return new BinaryWriter().tag(1, WireType.LengthDelimited).string(text).finish();
}

const TEXT_FIELD = {
  name: 'text',
  number: 1,
  type: FieldDescriptorProto_Type.STRING,
  label: FieldDescriptorProto_Label.OPTIONAL,
};

/** The option `google.api.http` as bytes: nothing here declares it. */
function httpOption(http: 'get' | 'post', path: string) {
  const rule = new BinaryWriter().tag(HTTP_RULE[http], WireType.LengthDelimited).string(path);
  if (http === 'post') rule.tag(HTTP_RULE.body, WireType.LengthDelimited).string('*');
  const data = new BinaryWriter().bytes(rule.finish()).finish();
  return { no: HTTP_OPTION, wireType: WireType.LengthDelimited, data };
}
