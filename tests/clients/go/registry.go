package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"github.com/twmb/franz-go/pkg/sr"
)

const (
	userAvro   = `{"type":"record","name":"User","fields":[{"name":"name","type":"string"}]}`
	userNewer  = `{"type":"record","name":"User","fields":[{"name":"name","type":"string"},{"name":"age","type":"int","default":0}]}`
	userBroken = `{"type":"record","name":"User","fields":[{"name":"name","type":"int"}]}`
	usesUser   = `{"type":"record","name":"Order","fields":[{"name":"by","type":"User"}]}`
	userProto  = "syntax = \"proto3\";\n\nmessage User {\n  string name = 1;\n}\n"
	userJSON   = `{"type":"object","properties":{"name":{"type":"string"}}}`
)

// A part of what franz-go's client of registries does; `subject` is a name that nobody else has.
type registryPart func(ctx context.Context, client *sr.Client, subject string) error

// accepting asks for fields that older clients do not know: without that, no answer names a GUID.
type accepting struct{}

func (accepting) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Confluent-Accept-Unknown-Properties", "true")
	return http.DefaultTransport.RoundTrip(request)
}

// franzRegistry: the first argument is the registry's URL. Calls whatever pkg/sr has.
func franzRegistry(_ string, arguments []string) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := sr.NewClient(sr.URLs(arguments[0]), sr.HTTPClient(&http.Client{Transport: accepting{}}))
	if err != nil {
		return nil, err
	}
	parts := map[string]registryPart{
		"schemas": registrySchemas, "types": registryTypes, "references": registryReferences, "levels": registryLevels,
		"modes": registryModes, "deletes": registryDeletes, "contexts": registryContexts, "contracts": registryContracts,
		"pages": registryPages, "records": registryRecords,
	}
	for name, part := range parts {
		if err := part(ctx, client, unique("go-"+name)); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return map[string]any{"parts": len(parts)}, nil
}

func equals(what string, found, wanted any) error {
	if !reflect.DeepEqual(found, wanted) {
		return fmt.Errorf("%s: %#v instead of %#v", what, found, wanted)
	}
	return nil
}

// refusedWith says whether a call failed with this error of the registry.
func refusedWith(what string, err error, wanted *sr.Error) error {
	var found *sr.ResponseError
	if !errors.As(err, &found) {
		return fmt.Errorf("%s: %v instead of %s", what, err, wanted.Name)
	}
	if found.ErrorCode != wanted.Code || found.SchemaError() != wanted {
		return fmt.Errorf("%s: %d (%s) instead of %d", what, found.ErrorCode, found.Message, wanted.Code)
	}
	return nil
}

func registrySchemas(ctx context.Context, client *sr.Client, subject string) error {
	first, err := client.CreateSchema(ctx, subject, sr.Schema{Schema: userAvro})
	if err != nil {
		return err
	}
	second, err := client.CreateSchema(ctx, subject, sr.Schema{Schema: userNewer})
	if err != nil {
		return err
	}
	again, err := client.CreateSchema(ctx, subject, sr.Schema{Schema: userAvro})
	if err != nil {
		return err
	}
	versions, _ := client.SubjectVersions(ctx, subject)
	byID, _ := client.SchemaByID(ctx, first.ID)
	text, _ := client.SchemaTextByID(ctx, first.ID)
	byVersion, _ := client.SchemaTextByVersion(ctx, subject, -1)
	all, _ := client.Schemas(ctx, subject)
	usages, _ := client.SchemaVersionsByID(ctx, second.ID)
	subjects, _ := client.SubjectsByID(ctx, first.ID)
	looked, _ := client.LookupSchema(ctx, subject, sr.Schema{Schema: userNewer})
	_, unknownID := client.SchemaByID(ctx, 1<<30)
	_, unknownSubject := client.SubjectVersions(ctx, subject+"-unknown")
	_, unknownVersion := client.SchemaByVersion(ctx, subject, 9)
	_, incompatible := client.CreateSchema(ctx, subject, sr.Schema{Schema: userBroken})
	_, invalid := client.CreateSchema(ctx, subject, sr.Schema{Schema: `{"type":"recor"}`})
	_, unseen := client.LookupSchema(ctx, subject, sr.Schema{Schema: userBroken})
	guid, err := client.SchemaByGUID(ctx, first.GUID)
	if err != nil {
		return fmt.Errorf("by guid %q: %w", first.GUID, err)
	}
	ids, err := client.SchemaIDsByGUID(ctx, first.GUID)
	return errors.Join(
		err,
		equals("versions", versions, []int{1, 2}),
		equals("registered again", again, first),
		equals("by id", byID.Schema, userAvro),
		equals("text by id", text, userAvro),
		equals("text of the latest", byVersion, userNewer),
		equals("all", all, []sr.SubjectSchema{first, second}),
		equals("usages", usages, []sr.SubjectVersion{{Subject: subject, Version: 2}}),
		equals("subjects", slices.Contains(subjects, subject), true),
		equals("looked up", looked.ID, second.ID),
		equals("by guid", guid.Schema.Schema, userAvro),
		equals("ids of the guid", ids, []sr.ContextID{{Context: ".", ID: first.ID}}),
		refusedWith("unknown id", unknownID, sr.ErrSchemaNotFound),
		refusedWith("unknown subject", unknownSubject, sr.ErrSubjectNotFound),
		refusedWith("unknown version", unknownVersion, sr.ErrVersionNotFound),
		refusedWith("incompatible", incompatible, sr.ErrIncompatibleSchema),
		refusedWith("invalid", invalid, sr.ErrInvalidSchema),
		refusedWith("a schema that is not there", unseen, sr.ErrSchemaNotFound),
	)
}

func registryTypes(ctx context.Context, client *sr.Client, subject string) error {
	types, err := client.SupportedTypes(ctx)
	if err != nil {
		return err
	}
	texts := map[sr.SchemaType]string{sr.TypeAvro: userAvro, sr.TypeProtobuf: userProto, sr.TypeJSON: userJSON}
	for kind, text := range texts {
		made, err := client.CreateSchema(ctx, subject+kind.String(), sr.Schema{Schema: text, Type: kind})
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		if err := equals(kind.String(), made.Type, kind); err != nil {
			return err
		}
	}
	serialized, err := client.SchemaByVersion(sr.WithParams(ctx, sr.Format("serialized")), subject+"PROTOBUF", 1)
	if err != nil || serialized.Schema.Schema == userProto {
		return fmt.Errorf("as a serialized descriptor: %q, %v", serialized.Schema.Schema, err)
	}
	return equals("types", types, []sr.SchemaType{sr.TypeAvro, sr.TypeProtobuf, sr.TypeJSON})
}

func registryReferences(ctx context.Context, client *sr.Client, subject string) error {
	user, err := client.CreateSchema(ctx, subject+"-user", sr.Schema{Schema: userAvro})
	if err != nil {
		return err
	}
	reference := []sr.SchemaReference{{Name: "User", Subject: user.Subject, Version: user.Version}}
	order, err := client.CreateSchema(ctx, subject, sr.Schema{Schema: usesUser, References: reference})
	if err != nil {
		return err
	}
	users, err := client.SchemaReferences(ctx, user.Subject, user.Version)
	_, held := client.DeleteSubject(ctx, user.Subject, sr.SoftDelete)
	return errors.Join(err,
		equals("references", order.References, reference),
		equals("referenced by", users, []sr.SubjectSchema{order}),
		refusedWith("deleting what is referred to", held, sr.ErrReferenceExists))
}

func registryLevels(ctx context.Context, client *sr.Client, subject string) error {
	if _, err := client.CreateSchema(ctx, subject, sr.Schema{Schema: userAvro}); err != nil {
		return err
	}
	none := client.Compatibility(ctx, subject)[0].Err
	global := client.Compatibility(sr.WithParams(ctx, sr.DefaultToGlobal), subject)[0]
	set := client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatFullTransitive}, subject)[0]
	level := client.Compatibility(ctx, subject)[0]
	good, err := client.CheckCompatibility(ctx, subject, -1, sr.Schema{Schema: userNewer})
	if err != nil {
		return err
	}
	verbose := sr.WithParams(ctx, sr.Verbose)
	bad, err := client.CheckCompatibility(verbose, subject, -2, sr.Schema{Schema: userBroken})
	if err != nil {
		return err
	}
	reset := client.ResetCompatibility(ctx, subject)[0]
	after := client.Compatibility(ctx, subject)[0].Err
	return errors.Join(global.Err, set.Err, level.Err, reset.Err,
		refusedWith("no level", none, sr.ErrSubjectLevelCompatibilityNotConfigured),
		equals("global", global.Level, sr.CompatBackward),
		equals("set", set.Level, sr.CompatFullTransitive),
		equals("level", level.Level, sr.CompatFullTransitive),
		equals("compatible", good.Is, true),
		equals("incompatible", bad.Is, false),
		equals("reasons", len(bad.Messages) > 0, true),
		refusedWith("after the reset", after, sr.ErrSubjectLevelCompatibilityNotConfigured))
}

func registryModes(ctx context.Context, client *sr.Client, subject string) error {
	none := client.Mode(ctx, subject)[0].Err
	global := client.Mode(ctx)[0]
	set := client.SetMode(ctx, sr.ModeReadOnly, subject)[0]
	_, closed := client.CreateSchema(ctx, subject, sr.Schema{Schema: userAvro})
	imports := client.SetMode(ctx, sr.ModeImport, subject)[0]
	id, err := client.RegisterSchema(ctx, subject, sr.Schema{Schema: userAvro, Type: sr.TypeAvro,
		SchemaMetadata: &sr.SchemaMetadata{Properties: map[string]string{"subject": subject}}}, 7_000_001, 5)
	if err != nil {
		return fmt.Errorf("importing: %w", err)
	}
	versions, _ := client.SubjectVersions(ctx, subject)
	reset := client.ResetMode(ctx, subject)[0]
	after := client.Mode(ctx, subject)[0].Err
	return errors.Join(global.Err, set.Err, imports.Err, reset.Err,
		refusedWith("no mode", none, sr.ErrSubjectLevelModeNotConfigured),
		equals("global", global.Mode, sr.ModeReadWrite),
		equals("set", set.Mode, sr.ModeReadOnly),
		refusedWith("read-only", closed, sr.ErrOperationNotPermitted),
		equals("imported id", id, 7_000_001),
		equals("imported version", versions, []int{5}),
		refusedWith("after the reset", after, sr.ErrSubjectLevelModeNotConfigured))
}

func registryDeletes(ctx context.Context, client *sr.Client, subject string) error {
	for _, text := range []string{userAvro, userNewer} {
		if _, err := client.CreateSchema(ctx, subject, sr.Schema{Schema: text}); err != nil {
			return err
		}
	}
	early := client.DeleteSchema(ctx, subject, 1, sr.HardDelete)
	soft := client.DeleteSchema(ctx, subject, 1, sr.SoftDelete)
	twice := client.DeleteSchema(ctx, subject, 1, sr.SoftDelete)
	versions, _ := client.SubjectVersions(ctx, subject)
	shown, _ := client.SubjectVersions(sr.WithParams(ctx, sr.ShowDeleted), subject)
	only, _ := client.SubjectVersions(sr.WithParams(ctx, sr.DeletedOnly), subject)
	hard := client.DeleteSchema(ctx, subject, 1, sr.HardDelete)
	_, notYet := client.DeleteSubject(ctx, subject, sr.HardDelete)
	left, err := client.DeleteSubject(ctx, subject, sr.SoftDelete)
	_, again := client.DeleteSubject(ctx, subject, sr.SoftDelete)
	listed, _ := client.Subjects(sr.WithParams(ctx, sr.SubjectPrefix(subject)))
	hidden, _ := client.Subjects(sr.WithParams(ctx, sr.SubjectPrefix(subject), sr.DeletedOnly))
	gone, last := client.DeleteSubject(ctx, subject, sr.HardDelete)
	return errors.Join(soft, hard, err, last,
		refusedWith("hard before soft", early, sr.ErrSchemaVersionNotSoftDeleted),
		refusedWith("soft twice", twice, sr.ErrSchemaVersionSoftDeleted),
		equals("versions", versions, []int{2}),
		equals("with deleted ones", shown, []int{1, 2}),
		equals("only deleted ones", only, []int{1}),
		refusedWith("subject: hard before soft", notYet, sr.ErrSubjectNotSoftDeleted),
		equals("deleted", left, []int{2}),
		refusedWith("subject: soft twice", again, sr.ErrSubjectSoftDeleted),
		equals("listed", len(listed), 0),
		equals("listed as deleted", hidden, []string{subject}),
		equals("gone", gone, []int{2}))
}

func registryContexts(ctx context.Context, client *sr.Client, subject string) error {
	name := "." + subject
	inside := ":" + name + ":orders"
	within := sr.InContext(ctx, name)
	made, err := client.CreateSchema(within, "orders", sr.Schema{Schema: userAvro})
	if err != nil {
		return err
	}
	contexts, err := client.Contexts(ctx)
	if err != nil {
		return err
	}
	subjects, err := client.Subjects(within)
	if err != nil {
		return err
	}
	full := client.DeleteContext(ctx, name)
	for _, how := range []sr.DeleteHow{sr.SoftDelete, sr.HardDelete} {
		if _, err := client.DeleteSubject(ctx, inside, how); err != nil {
			return err
		}
	}
	return errors.Join(
		equals("subject", made.Subject, inside),
		equals("subjects", subjects, []string{inside}),
		equals("contexts", slices.Contains(contexts, name) && slices.Contains(contexts, "."), true),
		refusedWith("a context that holds subjects", full, sr.ErrContextNotEmpty),
		client.DeleteContext(ctx, name))
}

func registryContracts(ctx context.Context, client *sr.Client, subject string) error {
	schema := sr.Schema{
		Schema: userAvro,
		SchemaMetadata: &sr.SchemaMetadata{
			Tags:       map[string][]string{"User.name": {"PII"}},
			Properties: map[string]string{"owner": "somebody"},
			Sensitive:  []string{"owner"},
		},
		SchemaRuleSet: &sr.SchemaRuleSet{DomainRules: []sr.SchemaRule{{
			Name: "named", Kind: sr.SchemaRuleKindCondition, Mode: sr.SchemaRuleModeWrite, Type: "CEL",
			Tags: []string{"PII"}, Expr: "message.name != ''", OnFailure: "ERROR",
		}}},
	}
	made, err := client.CreateSchema(ctx, subject, schema)
	if err != nil {
		return err
	}
	broken := schema
	broken.SchemaRuleSet = &sr.SchemaRuleSet{DomainRules: []sr.SchemaRule{{Name: "", Type: "CEL", Tags: []string{}}}}
	_, refused := client.CreateSchema(ctx, subject, broken)
	return errors.Join(
		equals("metadata", made.SchemaMetadata, schema.SchemaMetadata),
		equals("rules", made.SchemaRuleSet, schema.SchemaRuleSet),
		refusedWith("a rule without a name", refused, sr.ErrInvalidRuleset))
}

func registryPages(ctx context.Context, client *sr.Client, subject string) error {
	for n := range 3 {
		if _, err := client.CreateSchema(ctx, fmt.Sprint(subject, n), sr.Schema{Schema: userAvro}); err != nil {
			return err
		}
	}
	all, err := client.AllSchemas(sr.WithParams(ctx, sr.SubjectPrefix(subject)))
	if err != nil {
		return err
	}
	page, err := client.AllSchemas(sr.WithParams(ctx, sr.SubjectPrefix(subject), sr.Offset(1), sr.Limit(1)))
	return errors.Join(err, equals("all", len(all), 3), equals("page", page, all[1:2]))
}

// registryRecords writes a record with the header that Confluent's serializers write, and reads it by the id in it.
func registryRecords(ctx context.Context, client *sr.Client, subject string) error {
	type user struct {
		Name string `json:"name"`
	}
	made, err := client.CreateSchema(ctx, subject, sr.Schema{Schema: userJSON, Type: sr.TypeJSON})
	if err != nil {
		return err
	}
	serde := sr.NewSerde()
	serde.Register(made.ID, user{}, sr.EncodeFn(json.Marshal), sr.DecodeFn(json.Unmarshal))
	record, err := serde.Encode(user{Name: "Go"})
	if err != nil {
		return err
	}
	id, _, err := serde.DecodeID(record)
	if err != nil {
		return err
	}
	schema, err := client.SchemaByID(ctx, id)
	if err != nil {
		return err
	}
	var read user
	err = serde.Decode(record, &read)
	return errors.Join(err, equals("schema", schema.Schema, userJSON), equals("read", read, user{Name: "Go"}))
}
